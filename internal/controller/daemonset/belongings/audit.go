package belongings

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/claim"
)

// audit is what is still to be looked at of one that is under way.
type audit struct{ pods, known, sets []types.UID }

// AuditSlice tells the matrix again about the next few pods that it has in another way, and
// about the DaemonSets: the same facts again are no work. It returns a line for each
// difference. Done tells that it has come to the end: the next call begins again.
func (b *Book) AuditSlice(most int) (findings []string, done bool) {
	if b.audit == nil {
		b.audit = &audit{slices.Collect(maps.Keys(b.pods.all)), b.rows.Pods(), slices.Collect(maps.Keys(b.sets))}
	}
	a := b.audit
	for ; most > 0; most-- {
		found := ""
		switch {
		case len(a.pods) > 0:
			found = b.auditPod(next(&a.pods))
		case len(a.known) > 0:
			found = b.auditKnown(next(&a.known))
		case len(a.sets) > 0:
			if s := b.sets[next(&a.sets)]; s != nil {
				b.sync(s)
			}
		default:
			b.audit = nil
			return findings, true
		}
		if found != "" {
			findings = append(findings, found)
		}
	}
	return findings, false
}

// Audit looks at everything at once.
func (b *Book) Audit() (findings []string) {
	for b.audit = nil; ; {
		found, done := b.AuditSlice(1 << 10)
		if findings = append(findings, found...); done {
			return findings
		}
	}
}

func next(queue *[]types.UID) types.UID {
	uid := (*queue)[0]
	*queue = (*queue)[1:]
	return uid
}

// auditPod says how the matrix has a pod in another way, and mends it.
func (b *Book) auditPod(uid types.UID) string {
	p := b.pods.all[uid]
	if p == nil {
		return "" // it went meanwhile
	}
	owner := OwnerOf(p)
	if owner == "" {
		return ""
	}
	if s := b.sets[owner]; s != nil && claim.Judge(s.latest, s.selector, p) != claim.Mine {
		return ""
	}
	is := fact.OfPod(p, owner)
	have, ok := b.rows.Pod(uid)
	is.Before = have.Before
	if ok && have == is { // what it replaced is read once
		return ""
	}
	b.claimPod(p)
	return fmt.Sprintf("pod %s/%s was not known as it is", p.Namespace, p.Name)
}

// auditKnown has the matrix forget a pod that does not exist.
func (b *Book) auditKnown(uid types.UID) string {
	if _, known := b.rows.Pod(uid); !known || b.pods.has(uid) {
		return ""
	}
	b.rows.Step(fact.PodGone(uid))
	return fmt.Sprintf("pod with UID %s was known and does not exist", uid)
}
