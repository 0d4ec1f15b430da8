package main

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// moment is how a pod of a daemon was when something about it changed.
type moment struct {
	first                     bool // it was not known before
	at                        time.Time
	daemon, node, name, image string
	uid                       types.UID
	version, revision         string
	available, going, gone    bool
	reads                     []string
	given                     string // what its variant decides
}

func (m moment) String() string {
	return fmt.Sprintf("%s of node %s, revision %s, image %s, reading %q, at %s",
		m.name, m.node, m.revision, m.image, m.reads, m.at.Format("15:04:05.000"))
}

// story tells how the pods of a daemon came and went.
func story(moments []moment, daemon string) (out []string) {
	last := map[types.UID]moment{}
	for _, m := range moments {
		was := last[m.uid]
		last[m.uid] = m
		if m.daemon != daemon {
			continue
		}
		for what, is := range map[string]bool{
			"comes": m.first, "is available": m.available && !was.available,
			"goes": m.going && !was.going, "is gone": m.gone,
		} {
			if is {
				out = append(out, what+": "+m.String())
			}
		}
	}
	return out
}

// replaced says which pods of a daemon went, but for those that the scenario took itself, and those that the older
// program made: they have no revision of their own, and what they are to have is given them in their turn.
func replaced(moments []moment, daemon string, byUs map[types.UID]bool) (out []string) {
	went := map[types.UID]bool{}
	for _, m := range moments {
		if m.daemon == daemon && m.revision != "" && (m.going || m.gone) && !byUs[m.uid] && !went[m.uid] {
			went[m.uid] = true
			out = append(out, m.String())
		}
	}
	return out
}

// reading says which pods of a daemon were made to read a value.
func reading(moments []moment, daemon, value string) (out []string) {
	for _, m := range moments {
		if m.daemon == daemon && m.first && slices.Contains(m.reads, value) {
			out = append(out, m.String())
		}
	}
	return out
}

// overLimit says where a pod that was available was taken, and more nodes than the limit were without one then. What
// the scenario took itself is no fault, but it counts among those without. The history begins with the first pods.
func overLimit(moments []moment, daemon string, limit int, byUs map[types.UID]bool) (out []string) {
	last := map[types.UID]moment{}
	for _, m := range moments {
		if m.daemon != daemon {
			continue
		}
		was := last[m.uid].available
		last[m.uid] = m
		if !was || !m.going && !m.gone || byUs[m.uid] {
			continue
		}
		if n := without(last); n > limit {
			out = append(out, fmt.Sprintf("%s was taken at %s, and %d nodes had none that works then, over %d",
				m.name, m.at.Format("15:04:05.000"), n, limit))
		}
	}
	return out
}

// without counts the nodes that have had a pod, and have no available one.
func without(last map[types.UID]moment) (n int) {
	available := map[string]bool{}
	for _, m := range last {
		available[m.node] = available[m.node] || m.available
	}
	for _, is := range available {
		if !is {
			n++
		}
	}
	return n
}
