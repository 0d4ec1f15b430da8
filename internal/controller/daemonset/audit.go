package daemonset

import "time"

// An audit looks at so many nodes or pods at a time, and lets others work in between.
const (
	sliceSize  = 500
	slicePause = 5 * time.Millisecond
)

// auditing is how far an audit has come: whether one is under way, whether the objects
// have been compared, so that the matrix is recounted next, and when it goes on.
type auditing struct {
	under, compared bool
	next            time.Time
}

// audit compares, slice by slice, what the matrix was told with the objects themselves,
// recounts everything in it, and mends what has drifted. Drift is a bug; the audit keeps
// it from lasting and makes it seen.
func (o *owner) audit() {
	a := &o.auditing
	a.under, a.next = true, o.cfg.Clock.Now().Add(slicePause)
	var findings []string
	if !a.compared {
		findings, a.compared = o.book.AuditSlice(sliceSize)
	} else {
		var done bool
		if findings, done = o.matrix.AuditSlice(sliceSize); done {
			*a = auditing{}
		}
	}
	for _, f := range findings {
		o.metrics.auditDrift.Inc()
		o.log.Error(nil, "Matrix had drifted and was mended", "finding", f)
	}
}
