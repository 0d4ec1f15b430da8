package fact

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
)

// String prints the numbers in the order of the API's status.
func (st Status) String() string {
	return fmt.Sprintf("gen=%d desired=%d current=%d ready=%d updated=%d available=%d unavailable=%d misscheduled=%d",
		st.ObservedGeneration, st.Desired, st.Current, st.Ready, st.Updated, st.Available, st.Unavailable, st.Misscheduled)
}

// Status is the part of a DaemonSet's status that the matrix computes. It is
// comparable.
type Status struct {
	ObservedGeneration                                                     int64
	Desired, Current, Misscheduled, Ready, Updated, Available, Unavailable int32
}

// StatusOf reads a DaemonSet's status.
func StatusOf(s *appsv1.DaemonSetStatus) Status {
	return Status{
		ObservedGeneration: s.ObservedGeneration,
		Desired:            s.DesiredNumberScheduled, Current: s.CurrentNumberScheduled,
		Misscheduled: s.NumberMisscheduled, Ready: s.NumberReady,
		Updated: s.UpdatedNumberScheduled, Available: s.NumberAvailable,
		Unavailable: s.NumberUnavailable,
	}
}

// Apply writes the status into s and leaves its other fields alone.
func (st Status) Apply(s *appsv1.DaemonSetStatus) {
	s.ObservedGeneration = st.ObservedGeneration
	s.DesiredNumberScheduled, s.CurrentNumberScheduled = st.Desired, st.Current
	s.NumberMisscheduled, s.NumberReady = st.Misscheduled, st.Ready
	s.UpdatedNumberScheduled, s.NumberAvailable = st.Updated, st.Available
	s.NumberUnavailable = st.Unavailable
}
