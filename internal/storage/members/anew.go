package members

// Beginning is what a server knows of the others when it wants to begin again, which takes it
// away for some seconds.
type Beginning struct {
	// Self is its ID.
	Self string
	// All are the servers, itself among them, as they answer now.
	All []Server
}

// Now reports whether it may begin again now: one server after another does, in the order of their
// IDs, and none that would leave the others without a majority which they would have with it.
// Two servers have none when one is away, which must not hold them up for ever.
func (b Beginning) Now() bool {
	voters, others := 0, 0
	for _, s := range b.All {
		if s.Learner {
			return false // it still needs those that it gets its data from
		}
		voters++
		if s.ID == b.Self || s.Problem != "" {
			continue
		}
		if !s.Serving {
			return false // one that has just begun again is not back yet
		}
		others++
		if s.Outdated && s.ID < b.Self {
			return false // its turn comes first
		}
	}
	return others > voters/2 || others == voters-1
}
