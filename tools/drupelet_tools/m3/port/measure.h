// What the module `board` reports: the most that stack and heap have held.
#pragma once

void measure_stack_begin(void);
void measure_heap(void);
