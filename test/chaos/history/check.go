package history

// Check judges a record.
func Check(r Record) []Violation {
	j := newJudge(r)
	for i := range r.Events {
		j.event(&r.Events[i])
	}
	return append(j.found, checkWrites(r, j.tracks)...)
}
