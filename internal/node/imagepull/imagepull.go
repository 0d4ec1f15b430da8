// Package imagepull is how a client asks a node's agent to pull an image before a pod needs it, to keep it, and to let
// it go again.
package imagepull

import "time"

// Paths of an agent. PullPath is posted to, with the parameters below, and answers with lines of JSON, each a Progress.
// PinsPath tells the names of the images that are kept, as Pins; one is let go by DELETE with its name.
const (
	PullPath = "/images/pull"
	PinsPath = "/images/pins"
)

// Parameters.
const (
	// Image is the name of the image.
	Image = "image"
	// Pin is true for an image that is to be kept.
	Pin = "pin"
	// Always is true to ask the registry also for an image that is there.
	Always = "always"
)

// Beat is how often a node that pulls says that it still does.
const Beat = 5 * time.Second

// State is how far a pull is.
type State string

// The states. All but Pulling are the last.
const (
	Pulling State = "Pulling"
	Present State = "Present"
	Pulled  State = "Pulled"
	Failed  State = "Failed"
)

// Progress is a line of the answer.
type Progress struct {
	State State `json:"state"`
	// Message says why it failed.
	Message string `json:"message,omitempty"`
	// Bytes is the size of the image, once it is there.
	Bytes uint64 `json:"bytes,omitempty"`
}

// Pins are the images that are kept.
type Pins struct {
	Images []string `json:"images"`
}

// Unpinned says whether an image was kept that is let go.
type Unpinned struct {
	Removed bool `json:"removed"`
}
