package course

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// DaemonSet is what a course reads of one. It is comparable.
type DaemonSet struct {
	// Set are the placement rules of its revisions, and which one is the newest.
	placement.Set
	// Digest is that of the newest revision, by which people mean it: its name has 32 bits, and a template can be made
	// to have that of an approved one.
	Digest string
	// Renamed is what the newest revision was called before, "" if the one before was another. What is known of variants
	// is no part of it.
	Renamed string
	// MaxUnavailable is the DaemonSet's own limit; with Surge it is maxSurge.
	MaxUnavailable rolloutpolicy.Limit
	// Surge tells that a new pod starts beside the old one.
	Surge bool
	// MinReadySeconds is part of being available, and no part of a start's deadline.
	MinReadySeconds int32
	// Beside tells that another controller makes the pods: of the newest revision, where nobody says which one
	// is the node's. A node that has the target before its step has begun goes back, before anything else begins.
	Beside bool
	// Fetches tells that nodes can be asked for images, FetchPods that pods do, Foretells that nobody does: the times of
	// requests are believed.
	Fetches, Foretells bool
	FetchPods          fetching.Pods
	// MoreImages is how many images the newest revision has beyond those that a node can be asked for.
	MoreImages int
}

// Node is what a course reads of a node.
type Node struct {
	// Object is what placement rules and policies read of it, and does not change.
	Object *corev1.Node
	// Fault says why the node is out of order by itself; "" if it is not.
	Fault string
	// Silent tells that the fault is that nobody hears of the node, and Since when
	// the fault began; the zero time if somebody wants it so.
	Silent bool
	Since  time.Time
	// Maintained tells that the fault is that somebody works on the node.
	Maintained bool
}

// labels of a node that is not known yet are none.
func (n *Node) labels() map[string]string {
	if n.Object == nil {
		return nil
	}
	return n.Object.Labels
}

func (n *Node) equal(o *Node) bool {
	return n.Object == o.Object && n.Fault == o.Fault && n.Silent == o.Silent && n.Since.Equal(o.Since) &&
		n.Maintained == o.Maintained
}

// Following reports whether there is a policy to follow.
type Following uint8

// The cases. In all but Followed nothing new begins.
const (
	Followed Following = iota
	// Lost: the policy cannot be read, or it is not valid.
	Lost
	// Gone: it was deleted in the middle of a rollout.
	Gone
)
