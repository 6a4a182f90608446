"""ART: artifacts on disk: bundles, the store, disassembly."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_SOURCE = "Tilewright bundle format, tilewright.artifact.bundle"

CODES: tuple[Code, ...] = (
    Code(
        "ART001",
        "not a Tilewright bundle",
        "A bundle is a folder with a manifest.json, or one file that begins with TWBUNDLE. What was named is neither.",
        bad="tilewright run kernel.cubin",
        good="tilewright compile kernel.py:add --out add.bundle && tilewright run add.bundle",
        source=_SOURCE,
        help="name a folder or file that tilewright compile wrote",
    ),
    Code(
        "ART002",
        "the bundle has another schema version",
        "The meaning of an artifact's fields is fixed per schema version. Reading one version's fields by another "
        "version's rules could launch a kernel on the wrong sizes, so no guess is made.",
        bad="tilewright run built-by-an-older-release/",
        good="tilewright compile kernel.py:add --out add.bundle",
        source=_SOURCE,
        help="compile the kernel again with this version of Tilewright",
    ),
    Code(
        "ART003",
        "the bundle is truncated",
        "The manifest states the size of every part; fewer bytes are there. An interrupted copy looks like this.",
        bad="head -c 1000 add.twb > copy.twb && tilewright show copy.twb",
        good="cp add.twb copy.twb && tilewright show copy.twb",
        source=_SOURCE,
    ),
    Code(
        "ART004",
        "the bundle was altered",
        "A SHA-256 does not match the bytes it stands for. The certificate speaks about the kernel that was compiled, "
        "not about edited code, so nothing of an altered bundle is used.",
        bad="sed -i s/128/256/ add.bundle/add.cu && tilewright run add.bundle",
        good="tilewright compile kernel.py:add --out add.bundle",
        source=_SOURCE,
        help="compile the kernel again, or fetch the bundle again",
    ),
    Code(
        "ART005",
        "the bundle does not follow the schema",
        "The hashes match but a field is missing, unknown, of another type, or not an integer expression. Another tool "
        "wrote this bundle, or wrote it wrongly.",
        bad='"threads": "128"',
        good='"threads": 128',
        source=_SOURCE,
        help="write the bundle again with tilewright compile",
    ),
    Code(
        "ART006",
        "the artifact is inconsistent",
        "Every reference inside an artifact must resolve and every size must be possible on its target: a launch names "
        "a kernel that is there, an expression uses the parameters' dimensions, a descriptor is encoded before use.",
        bad='Launch("add", ...) where kernels holds only "mul"',
        good='Launch("mul", ...)',
        source="tilewright.artifact.schema",
        help="write the bundle again with tilewright compile",
    ),
    Code(
        "ART007",
        "the output folder holds something else",
        "A bundle replaces an older bundle or an empty folder, never files it does not know.",
        bad="tilewright compile kernel.py:add --out ~/",
        good="tilewright compile kernel.py:add --out ~/add.bundle",
        source=_SOURCE,
    ),
    Code(
        "ART008",
        "the store can't be written",
        "Compiled kernels are kept in a folder so that the next process need not compile. That folder could not be "
        "created or written; the kernel itself is fine.",
        bad="TILEWRIGHT_STORE=/proc/store python train.py",
        good="TILEWRIGHT_STORE=$HOME/.cache/tilewright python train.py",
        source="tilewright.diag.configuration, TILEWRIGHT_STORE",
    ),
    Code(
        "ART009",
        "the disassembler is missing or refused the cubin",
        "SASS is printed by NVIDIA's nvdisasm, which comes with the package nvidia-cuda-nvdisasm.",
        bad="pip uninstall nvidia-cuda-nvdisasm",
        good="pip install nvidia-cuda-nvdisasm",
        source="CUDA Binary Utilities, nvdisasm",
        help="pip install nvidia-cuda-nvdisasm",
    ),
    Code(
        "ART010",
        "the bundle can't be written",
        "A bundle is written beside the folder it is meant for and then renamed; the disk or the folder above refused. "
        "What was there before is untouched.",
        bad="tilewright compile kernel.py:add --out /proc/add.bundle",
        good="tilewright compile kernel.py:add --out ~/add.bundle",
        source=_SOURCE,
        help="name a folder on a disk with room, in which you may write",
    ),
    Code(
        "ART011",
        "the Transport IR can't be read",
        "A bundle keeps the Transport IR of each kernel as text, which validation reads. This text is not what a "
        "compiler of this version writes.",
        bad="sed -i s/transport.kernel/kernel/ add.bundle/add.transport.mlir",
        good="tilewright compile kernel.py:add --out add.bundle",
        source=_SOURCE,
        help="compile the kernel again with this version of Tilewright",
    ),
)
