// Package machines keeps the simulated machines of a round on parts: which there are, and which are silent.
package machines

import (
	"fmt"
	"slices"
	"sync"

	"github.com/everynode/everynode/internal/simulator"
)

// Fleet are the machines. It outlives the simulator that runs them, as machines outlive their software.
type Fleet struct {
	mu      sync.Mutex
	sim     *simulator.Simulator
	names   []string
	silent  map[string]bool
	counted int
}

// New returns a fleet without machines.
func New() *Fleet { return &Fleet{silent: map[string]bool{}} }

// Attach gives all machines to a new simulator.
func (f *Fleet) Attach(s *simulator.Simulator) {
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

// Add brings a new machine, or the one that left last back.
func (f *Fleet) Add(back string) string {
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

// Remove takes a machine away for good, unless it is added again.
func (f *Fleet) Remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == name })
	delete(f.silent, name)
	f.sim.StopNode(name)
}

// Silence cuts a machine off; Wake undoes it.
func (f *Fleet) Silence(pick int) string {
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

// Quiet is a machine that is silent, or "".
func (f *Fleet) Quiet() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.names {
		if f.silent[name] {
			return name
		}
	}
	return ""
}

// AllQuiet are the machines that are silent.
func (f *Fleet) AllQuiet() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.names), func(n string) bool { return !f.silent[n] })
}

// Wake brings silent machines back: one, or all with a negative pick.
func (f *Fleet) Wake(pick int) (woken []string) {
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
