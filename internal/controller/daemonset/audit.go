package daemonset

// audit recounts the matrix and mends what has drifted. Drift is a bug; the
// audit keeps it from lasting and makes it seen.
func (o *owner) audit() {
	for _, finding := range o.matrix.Audit() {
		o.metrics.auditDrift.Inc()
		o.log.Error(nil, "Matrix had drifted and was mended", "finding", finding)
	}
}
