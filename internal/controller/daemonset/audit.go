package daemonset

// audit compares what the matrix was told with the objects themselves, recounts
// everything in it, and mends what has drifted. Drift is a bug; the audit keeps
// it from lasting and makes it seen.
func (o *owner) audit() {
	findings := o.book.Audit()
	for _, f := range append(findings, o.matrix.Audit()...) {
		o.metrics.auditDrift.Inc()
		o.log.Error(nil, "Matrix had drifted and was mended", "finding", f)
	}
}
