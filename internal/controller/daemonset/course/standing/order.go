package standing

// Order says what is to be on a node now.
type Order struct {
	// Target is the revision that a pod made now is to have; "" if none is to be made.
	Target string
	// Change tells that the pod of another revision may be replaced, Create that a pod
	// may be made where there is none.
	Change, Create bool
	// Changing tells that there is another revision to go to than the stable one.
	Changing bool
	// Halted tells that the target has failed, and that nodes stay as they are.
	Halted bool
	// Fetch says whether the node is to fetch the images of the target of the change.
	Fetch Wish
}
