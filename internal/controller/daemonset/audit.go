package daemonset

import (
	"fmt"

	"github.com/everynode/everynode/internal/claim"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
)

// audit compares what the matrix was told with the objects themselves, recounts
// everything in it, and mends what has drifted. Drift is a bug; the audit keeps
// it from lasting and makes it seen.
func (o *owner) audit() {
	findings := o.auditPods()
	for _, s := range o.sets {
		// The same facts again are no work.
		o.sync(s)
	}
	for _, f := range append(findings, o.core.Audit()...) {
		o.metrics.auditDrift.Inc()
		o.log.Error(nil, "Matrix had drifted and was mended", "finding", f)
	}
}

// auditPods tells the matrix again about every pod that it has in another way.
func (o *owner) auditPods() []string {
	var findings []string
	for uid, p := range o.pods.all {
		owner := ownerOf(p)
		if owner == "" {
			continue
		}
		if s := o.sets[owner]; s != nil && claim.Judge(s.latest, s.selector, p) != claim.Mine {
			continue
		}
		if have, ok := o.matrix.Pod(uid); !ok || have != matrix.ProjectPod(p, owner) {
			findings = append(findings, fmt.Sprintf("pod %s/%s was not known as it is", p.Namespace, p.Name))
			o.claimPod(p)
		}
	}
	for _, uid := range o.matrix.Pods() {
		if !o.pods.has(uid) {
			findings = append(findings, fmt.Sprintf("pod with UID %s was known and does not exist", uid))
			o.core.Step(matrix.PodGone(uid))
		}
	}
	return findings
}
