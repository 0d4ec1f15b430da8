package history

// Check judges a record. It returns too how many daemons were taken away whose nodes had to have images before.
func Check(r Record) (found []Violation, fetched int) {
	j := newJudge(r)
	for i := range r.Events {
		j.event(&r.Events[i])
	}
	return append(j.found, checkWrites(r, j.tracks)...), j.fetched
}
