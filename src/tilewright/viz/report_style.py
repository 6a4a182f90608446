"""The style sheet of the report: light and dark, narrow and wide, no fonts or scripts from elsewhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --text: #1d2329; --muted: #5f6b76; --line: #dfe3e6; --accent: #1f6f54;
  --bar: #7fb8a2; --good: #1f7a4d; --bad: #b3261e; --code: #f4f3ef; --key: #8a3ea8; --str: #9a5b00; --com: #6b7680;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --card: #1b2026; --text: #e4e8eb; --muted: #9aa5af; --line: #323a42; --accent: #7fd1b0;
    --bar: #3f8f74; --good: #6fd39b; --bad: #ff8a80; --code: #12161a; --key: #cf9bea; --str: #e3b26b; --com: #8b97a2;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 21px; margin: 44px 0 4px; padding-top: 18px; border-top: 2px solid var(--line); }
h3 { font-size: 16px; margin: 26px 0 8px; }
p { margin: 6px 0; }
a { color: var(--accent); }
.muted { color: var(--muted); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 10px; margin: 14px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.card b { display: block; font-size: 19px; font-weight: 600; overflow-wrap: anywhere; }
.card span { color: var(--muted); font-size: 13px; }
.good { color: var(--good); }
.bad { color: var(--bad); }
pre, code, svg text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
code { font-size: 0.92em; overflow-wrap: anywhere; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; margin: 8px 0;
      font-size: 13px; line-height: 1.45; overflow: auto; max-height: 560px; }
pre .c { color: var(--com); }
pre .s { color: var(--str); }
pre .k { color: var(--key); }
pre .b { color: var(--accent); }
.wide { overflow-x: auto; }
.wide table { min-width: 620px; }
td.of { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--muted); }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.bar { width: 46%; }
td.bar div { background: var(--bar); height: 11px; margin-top: 6px; border-radius: 3px; min-width: 1px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 8px 32px; }
ul { margin: 6px 0; padding-left: 20px; }
summary { cursor: pointer; padding: 4px 0; color: var(--accent); }
svg { display: block; }
svg text[fill="#555"], svg text[fill="#777"] { fill: var(--muted); }
figure { margin: 10px 0 18px; }
figcaption { color: var(--muted); font-size: 13px; margin-bottom: 4px; }
@media print { details > * { display: block; } pre { max-height: none; } }
"""
