// Package action is what the DaemonSet controller does: pods to make and to delete, what is to be written, and what
// became of it. Each action says why.
package action

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Action is something to do: *CreatePod, *DeletePod, *PointPod, *ResizePod, *FetchImages, *FailedPlacement,
// *UpdateStatus, *UpdateRollout or *RolloutNews. Its String is one line for logs and tests.
type Action interface {
	fmt.Stringer
	// Row is the UID of the DaemonSet the action belongs to.
	Row() types.UID
	// Why is the reason for the action.
	Why() Reason
}

// Reason says in a few words why an action is taken.
type Reason string

// The reasons.
const (
	ReasonMissing             Reason = "node has no daemon pod"
	ReasonSurge               Reason = "new revision, within maxSurge"
	ReasonSurgeUnavailable    Reason = "new revision, old pod is not available"
	ReasonNodeUnfit           Reason = "node no longer fits"
	ReasonNodeGone            Reason = "node is gone and the pod was never bound"
	ReasonFailed              Reason = "pod failed"
	ReasonSucceeded           Reason = "pod succeeded"
	ReasonDuplicate           Reason = "node has an older daemon pod"
	ReasonOutdated            Reason = "old revision, within maxUnavailable"
	ReasonOutdatedUnavailable Reason = "old revision, not available"
	ReasonSurgeDone           Reason = "new pod is available"
	ReasonSurgeOldNotReady    Reason = "new pod exists and old pod is not ready"
	ReasonTurn                Reason = "its turn in the rollout"
	ReasonLive                Reason = "its turn in the rollout, without a restart"
	ReasonResize              Reason = "other amounts, given to the running pod"
	ReasonFetch               Reason = "images are to be there before"
	ReasonNotMounted          Reason = "node does not say that the pod has its content"
	ReasonNews                Reason = "for people"
	ReasonSunset              Reason = "node no longer wanted and enough pods are available"
	ReasonUnplaceable         Reason = "node cannot take the pod"
	ReasonStatus              Reason = "status changed"
)

// Target names the DaemonSet of an action.
type Target struct {
	UID             types.UID
	Namespace, Name string
}

// Row is the UID of the DaemonSet.
func (t Target) Row() types.UID { return t.UID }

// CreatePod asks for a daemon pod on a node.
type CreatePod struct {
	Target
	Node     string
	Revision string
	// PodName is derived from the DaemonSet, the node and the names that are in
	// use there, so that a repetition meets its own pod and does not make a twin.
	PodName string
	Reason  Reason
	// Before is what the daemon was like that the pod replaces, for a pod that comes in its
	// turn in a rollout.
	Before standing.Before
	// Again says that the last creation on the node failed.
	Again bool
}

// Why is the reason for the action.
func (a *CreatePod) Why() Reason { return a.Reason }

func (a *CreatePod) String() string {
	before := ""
	if a.Before == standing.WasNotAvailable {
		before = "; the one before was not available"
	}
	return fmt.Sprintf("create %s/%s rev=%s (%s%s)", a.Name, a.Node, a.Revision, a.Reason, before)
}

// DeletePod asks for the deletion of exactly that pod.
type DeletePod struct {
	Target
	Node    string
	PodName string
	PodUID  types.UID
	Reason  Reason
	// Next is the revision of the pod that is to come in its place; "" if none is, or if it is there.
	Next string
	// Detail says more about the reason, for people; it may be empty.
	Detail string
}

// Why is the reason for the action.
func (a *DeletePod) Why() Reason { return a.Reason }

func (a *DeletePod) String() string {
	return fmt.Sprintf("delete %s/%s pod=%s (%s)", a.Name, a.Node, a.PodName, a.Reason)
}

// PointPod asks for the volumes of exactly that pod to show the content of a revision, which then is the pod's.
type PointPod struct {
	Target
	Node     string
	PodName  string
	PodUID   types.UID
	Revision string
	// At is when it is asked for. The pod says that, by which it is known to show just this.
	At time.Time
	// Before is what the node's daemon was like by then.
	Before standing.Before
	// Settle is how long after that the pod is judged.
	Settle time.Duration
}

// Why is the reason for the action.
func (a *PointPod) Why() Reason { return ReasonLive }

func (a *PointPod) String() string {
	return fmt.Sprintf("point %s/%s pod=%s rev=%s", a.Name, a.Node, a.PodName, a.Revision)
}

// ResizePod asks for exactly that pod to be given the amounts of cpu and memory of a revision, which then is the pod's.
type ResizePod struct {
	Target
	Node     string
	PodName  string
	PodUID   types.UID
	Revision string
	// At is when it is asked for. The pod says that, by which it is known to show just this.
	At time.Time
	// Before is what the node's daemon was like by then; "" where the rollout follows no policy.
	Before standing.Before
	// Gapless tells that the daemon must not be restarted for it.
	Gapless bool
}

// Why is the reason for the action.
func (a *ResizePod) Why() Reason { return ReasonResize }

func (a *ResizePod) String() string {
	return fmt.Sprintf("resize %s/%s pod=%s rev=%s", a.Name, a.Node, a.PodName, a.Revision)
}

// FetchImages asks the node of exactly that pod for the images of a revision; "" takes that back.
type FetchImages struct {
	Target
	Node     string
	PodName  string
	PodUID   types.UID
	Revision string
}

// Why is the reason for the action.
func (a *FetchImages) Why() Reason { return ReasonFetch }

func (a *FetchImages) String() string {
	return fmt.Sprintf("fetch %s/%s pod=%s rev=%s", a.Name, a.Node, a.PodName, a.Revision)
}

// UpdateStatus asks for a DaemonSet's status to be written.
type UpdateStatus struct {
	Target
	Status     fact.Status
	Conditions fact.Conditions
}

// Why is the reason for the action.
func (a *UpdateStatus) Why() Reason { return ReasonStatus }

func (a *UpdateStatus) String() string {
	return fmt.Sprintf("status %s %s", a.Name, a.Status)
}

// Outcome is what became of an action.
type Outcome uint8

// The outcomes.
const (
	// OK: it is done. For a creation also: the very pod exists already.
	OK Outcome = iota
	// Gone: what the action was about does not exist any more.
	Gone
	// NameTaken: a pod of that name exists and is not the one we meant.
	NameTaken
	// Failed: it was refused and not done; try again later.
	Failed
	// Unknown: there was no answer, so it may be done or not; try again later.
	Unknown
)

func (o Outcome) String() string {
	return [...]string{"ok", "gone", "name taken", "failed", "unknown"}[o]
}
