package admit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/change/content"
)

// Choice is what an operator wants of one DaemonSet when everybody leaves.
type Choice uint8

// The choices. Wait gives back what is complete, and refuses what is not.
const (
	Wait Choice = iota
	KeepOnDelete
	LetItRoll
)

// Leaving is a DaemonSet that is to be given back to kube-controller-manager.
type Leaving struct {
	// Name is its namespace and name, for people.
	Name string
	// Newest is the hash of its template. Pods says on how many nodes there is a pod of each revision.
	Newest string
	Pods   map[string]int
	// Varied says on how many nodes there is a pod that was made by a variant.
	Varied int
	Choice Choice
	// Approves says that whoever asks may approve rollouts.
	Approves bool
	// Lost says why nobody can tell what its author wrote; "" if that can be told.
	Lost string
}

// Parting is what becomes of a DaemonSet.
type Parting uint8

// The partings. GivenBack gets its author's strategy again, StaysOnDelete stays as it is stored, and Refused is not
// touched.
const (
	GivenBack Parting = iota
	StaysOnDelete
	Refused
)

// Leave decides what becomes of a DaemonSet, and says it for people. kube-controller-manager replaces every pod that is
// not of the newest template, without waves and whether that template failed or not, as soon as it may. Content
// and variants are nothing to it: a pod keeps its copies, and what its variant made of it, until it is next made.
func Leave(l Leaving) (Parting, string) {
	parting, says := l.part()
	if n := l.copied(); n > 0 && parting != Refused {
		says += fmt.Sprintf("; the pods of %d nodes read copies of its content until they are next made, and the copies "+
			"stay as long as the DaemonSet", n)
	}
	if l.Varied > 0 && parting != Refused {
		says += fmt.Sprintf("; the pods of %d nodes are those of their variants until they are next made", l.Varied)
	}
	return parting, says
}

func (l Leaving) part() (Parting, string) {
	others, nodes := l.others()
	change := fmt.Sprintf("%d nodes have %s and would get %s at once, without waves", nodes, others, l.Newest)
	switch {
	case l.Lost != "" && l.Choice == KeepOnDelete:
		return StaysOnDelete, fmt.Sprintf("%s stays OnDelete; what its author wrote is lost", l.Name)
	case l.Lost != "":
		return Refused, fmt.Sprintf("%s: %s; write its update strategy again, or choose that it stays OnDelete", l.Name,
			l.Lost)
	case nodes == 0:
		return GivenBack, fmt.Sprintf("%s is as its author wrote it; no pod changes", l.Name)
	case l.Choice == KeepOnDelete:
		return StaysOnDelete, fmt.Sprintf("%s stays OnDelete; %d nodes keep %s", l.Name, nodes, others)
	case l.Choice == LetItRoll && l.Approves:
		return GivenBack, fmt.Sprintf("%s goes on: %d nodes get %s at once, without waves", l.Name, nodes, l.Newest)
	case l.Choice == LetItRoll:
		return Refused, fmt.Sprintf("%s: %s; that is for those who may approve rollouts", l.Name, change)
	}
	return Refused, fmt.Sprintf("%s: %s; wait until the change has ended, or choose otherwise for it", l.Name, change)
}

// others are the templates besides the newest, and on how many nodes they are.
func (l Leaving) others() (names string, nodes int) {
	of := map[string]int{}
	for revision, n := range l.Pods {
		if hash := content.TemplateOf(revision); hash != l.Newest && n > 0 {
			nodes += n
			of[hash] += n
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(of)), ", "), nodes
}

// copied are on how many nodes there is a pod that reads copies of content.
func (l Leaving) copied() (nodes int) {
	for revision, n := range l.Pods {
		if content.IDOf(revision) != "" {
			nodes += n
		}
	}
	return nodes
}
