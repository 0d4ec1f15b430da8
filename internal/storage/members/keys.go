package members

// Taking is what a server does about the keys that all servers have.
type Taking string

const (
	// Rest does nothing: it has what all have.
	Rest Taking = "rest"
	// Note writes down that it has what all have.
	Note Taking = "note"
	// Publish tells the others that it has other ones, which they are to take.
	Publish Taking = "publish"
	// Take gets those of the others.
	Take Taking = "take"
	// Dispute leaves all as it is: keys were replaced on two servers at once.
	Dispute Taking = "dispute"
)

// KeysHere is what a server knows of the keys, by hashes. An empty one is not known.
type KeysHere struct {
	// Own are those that it has, Agreed those that it had in common with all others when it
	// last looked, and Begun those that it began to take.
	Own, Agreed, Begun string
}

// Decide compares them with what all servers are to have; empty if nobody has told yet.
func (k KeysHere) Decide(all string) Taking {
	switch {
	case k.Own == all && k.Agreed == all && k.Begun == "":
		return Rest
	case k.Own == all:
		return Note
	case all == "":
		return Publish
	case k.Begun != "" || k.Agreed == "" || k.Own == k.Agreed:
		return Take // nobody has replaced any here
	case k.Agreed == all:
		return Publish
	}
	return Dispute
}
