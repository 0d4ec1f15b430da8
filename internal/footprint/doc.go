// Package footprint keeps a process's memory small.
//
// Much of what is resident of a small process is the program itself: it is agent and control plane at once, and at the
// start of a process the initialization of every package reads its part of the file. None of that is needed again, but
// as long as it is mapped the kernel counts it as the process's. So now and then the mappings of the program's own
// file, which nobody can write, are dropped, as the kernel itself does when memory is short. What is used after all is
// mapped again from the page cache; nothing is read from a disk unless the kernel has taken the page away meanwhile.
// Where a debugger or a probe of the kernel changed the code, it is left alone.
//
// The heap is collected more often than is Go's habit: an agent has little to do and shares its machine with the pods,
// and a server's memory is mostly what it has to hold, which a heap of twice that size would make no faster to read.
// Where that is much, to look through it again and again is what costs most, and it is collected less often.
package footprint
