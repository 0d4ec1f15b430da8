package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/everynode/everynode/internal/simulator"
)

// fleet are the simulated machines: which there are, and which are silent. It
// outlives the simulator that runs them, as machines outlive their software.
type fleet struct {
	mu      sync.Mutex
	sim     *simulator.Simulator
	names   []string
	silent  map[string]bool
	counted int
}

func newFleet() *fleet { return &fleet{silent: map[string]bool{}} }

// attach gives all machines to a new simulator.
func (f *fleet) attach(s *simulator.Simulator) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sim = s
	for _, name := range f.names {
		s.StartNode(name)
		if f.silent[name] {
			s.StopNode(name)
		}
	}
}

// add brings a new machine, or the one that left last back.
func (f *fleet) add(back string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := back
	if name == "" {
		f.counted++
		name = fmt.Sprintf("node-%02d", f.counted)
	}
	f.names = append(f.names, name)
	if f.sim != nil {
		f.sim.StartNode(name)
	}
	return name
}

// remove takes a machine away for good, unless it is added again.
func (f *fleet) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == name })
	delete(f.silent, name)
	f.sim.StopNode(name)
}

// silence cuts a machine off; wake undoes it.
func (f *fleet) silence(pick int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.names) == 0 {
		return ""
	}
	name := f.names[pick%len(f.names)]
	f.silent[name] = true
	f.sim.StopNode(name)
	return name
}

// quiet is a machine that is silent, or "".
func (f *fleet) quiet() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.names {
		if f.silent[name] {
			return name
		}
	}
	return ""
}

// allQuiet are the machines that are silent.
func (f *fleet) allQuiet() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.names), func(n string) bool { return !f.silent[n] })
}

// wake brings silent machines back: one, or all with a negative pick.
func (f *fleet) wake(pick int) (woken []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, name := range slices.DeleteFunc(slices.Clone(f.names), func(n string) bool { return !f.silent[n] }) {
		if pick < 0 || i == 0 {
			delete(f.silent, name)
			f.sim.StartNode(name)
			woken = append(woken, name)
		}
	}
	return woken
}
