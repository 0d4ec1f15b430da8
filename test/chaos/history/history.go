package history

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// TemplateMark is the annotation by which templates are told apart: each has another value.
const TemplateMark = revision.TemplateMark

// Event is one change of one object, in the database's order.
type Event struct {
	Revision int64
	// Object is a DaemonSet, Pod, Node, ControllerRevision, RolloutPolicy or
	// DaemonSetRollout as it was after the change, or before its deletion.
	Object  metav1.Object
	Deleted bool
}

// Write is something that a user asked for.
type Write struct {
	Kind, Name string
	UID        types.UID // unknown for a creation without an answer
	// Acknowledged reports whether there was an answer, and Revision which revision
	// it named. A write without an answer may have been done.
	Acknowledged bool
	Revision     int64
	// Delete is a deletion; all others leave the object with this Wish.
	Delete bool
	Wish   string
}

// Call is a request of the DaemonSet controller's, known only where the controller runs apart.
type Call struct {
	// Delete says that it was for the end of a pod, Point for other content of a running one, Resize for other amounts;
	// else a pod was made.
	Delete, Point, Resize bool
	// Pod is the name.
	Pod string
	// Since is the newest revision there was when the request was made, Early that some
	// time before: it had been decided on by then at the earliest.
	Since, Early int64
}

// Sight is a version of an object that was delivered to the DaemonSet controller.
type Sight struct {
	UID types.UID
	// At is the newest revision there was when Version was delivered, or, without one, when another controller began.
	At, Version int64
}

// Record is all that is known of a round. Ends are when the controller heard that objects are gone, or another began.
type Record struct {
	Events       []Event
	Writes       []Write
	Calls        []Call
	Sights, Ends []Sight
	// Told says that Calls, Sights and Ends are complete.
	Told bool
}

// Violation is a rule that was broken.
type Violation struct {
	Rule, Message string
	Revision      int64
	// Objects are the UIDs of those concerned.
	Objects []types.UID
}

func (v Violation) String() string {
	return fmt.Sprintf("%s, at revision %d: %s", v.Rule, v.Revision, v.Message)
}

// lag is how many revisions behind a controller may be about which nothing but the history is known.
const lag = 400

// version is an object from one revision to the next one of its own, track the life of one object.
type version = lives.Version
type track = lives.Track

// index makes the tracks of all objects.
func index(events []Event) map[types.UID]*track {
	tracks := map[types.UID]*track{}
	for _, e := range events {
		lives.Add(tracks, version{From: e.Revision, Object: e.Object}, e.Deleted)
	}
	return tracks
}

// ownerOf is the DaemonSet that controls an object.
func ownerOf(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil && ref.Kind == "DaemonSet" {
		return ref.UID
	}
	return ""
}

func markOf(p *corev1.Pod) string          { return p.Annotations[TemplateMark] }
func markOfSet(d *appsv1.DaemonSet) string { return d.Spec.Template.Annotations[TemplateMark] }
