package standing

import (
	"time"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// Daemon is what became of the DaemonSet on a node. It is comparable.
type Daemon struct {
	// Revision is that of the node's newest pod; "" if there is none that stays. Ending
	// is then that of a pod that is still there.
	Revision, Ending string
	// Available reports whether a pod of the node is, of whatever revision, and Since
	// when the newest one is: the zero time while it is not.
	Available bool
	Since     time.Time
	// Comes is when the newest pod, which is ready, is to be available; zero if it is not ready, or is already.
	Comes time.Time
	// Ended tells that the node has no newest pod, but one that ended or is about to.
	Ended bool
	// EndsBy is until when a pod that is on its way out was to be gone, if there is one
	// beside the newest or in its place; Grace is how long that was to take.
	EndsBy time.Time
	Grace  time.Duration
	// Two tells that an older pod is there beside the newest.
	Two bool
	// Made is when the newest pod was made, Bound when it was bound to the node.
	Made, Bound time.Time
	// Given tells that it had run before, and was given the revision at Made, by the clock of the controller that did.
	Given bool
	// Restarts is how often containers of the newest pod have restarted.
	Restarts int32
	// Trouble says why the newest pod does not come up: an image that cannot be
	// pulled, a container that cannot start or was killed for memory, a creation that
	// the API refuses. Certain tells that waiting will not help.
	Trouble string
	Certain bool
	// Cause is what it is then; "" if that is not known.
	Cause Reason
	// NoRoom says why the scheduler finds no room on the node.
	NoRoom string
	// Gates are the scheduling gates that keep the newest pod from being bound, by their names.
	Gates string
	// Refused says why the API refuses the pod that is to come, RefusedOf which revision that pod has.
	Refused, RefusedOf string
	// Before is what the newest pod, or while there is none the one that Ending is of, says of
	// the daemon that it replaced. Was is what one that is on its way out was like itself.
	Before, Was Before
	// Held tells that the last try to change the node failed, and that the next one is
	// later. Unsure tells that the last one got no answer, so that it may be done, or none yet where
	// nothing else shows it.
	Held, Unsure bool
	// Fetch is what the newest pod's node says of images that it was asked for.
	Fetch fetch.Report
}

// Before is what a node's daemon was like when a change took it away; "" if there was
// none, or nobody knows. It is told to the pod that comes in its place, so that it is known
// after a restart too: what was broken before is no evidence against a revision.
type Before string

// The cases.
const (
	WasAvailable    Before = "available"
	WasNotAvailable Before = "unavailable"
)

// Reason is a kind of failure, for counting.
type Reason string

// The reasons. What keeps containers from starting has some of its own, told in
// Daemon.Cause.
const (
	BecauseRestarts Reason = "Restarts"
	BecauseStart    Reason = "ContainerStart"
	BecauseLate     Reason = "NotInTime"
	BecauseRefused  Reason = "Refused"
	BecauseNoRoom   Reason = "NoRoom"
	BecauseSilent   Reason = "StoppedAnswering"
	BecauseFault    Reason = "NodeFault"
	// BecauseFetch: its image cannot be had, which is known before a daemon was taken away.
	BecauseFetch Reason = "ImageFetch"
	// BecauseUnknown: it was seen before the controller started, or is one of more than
	// are kept by name.
	BecauseUnknown Reason = "Unknown"
)

// Verdict is where a node stands, and whose fault it is if it is not well.
type Verdict string

// The verdicts.
const (
	NotSelected    Verdict = "NotSelected"
	Waiting        Verdict = "Waiting"
	Changing       Verdict = "Changing"
	Current        Verdict = "Current"
	FailedRevision Verdict = "FailedRevision"
	NodeFault      Verdict = "NodeFault"
	NoRoom         Verdict = "NoRoom"
	InMaintenance  Verdict = "InMaintenance"
)

// Empty: nothing is left of a pod.
func (d *Daemon) Empty() bool { return d.Revision == "" && d.Ending == "" && !d.Ended }

// Occupied: there is some pod, of whatever revision.
func (d *Daemon) Occupied() bool { return !d.Empty() || !d.Made.IsZero() }

// Unbound says why the newest pod is not bound yet.
func (d *Daemon) Unbound() string {
	if d.Gates != "" {
		return words.Cut("its pod waits behind a scheduling gate: " + d.Gates)
	}
	return "its pod is not bound to it yet"
}

// Troubled: waiting does not help, as far as can be told at once.
func (d *Daemon) Troubled() bool { return d.Certain || d.Refused != "" }
