"""Transport IR to CUDA C++, PTX and machine code. Obeys the IR; decides nothing."""
