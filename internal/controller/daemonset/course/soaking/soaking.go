// Package soaking keeps how long the step under way has soaked, also for the next process, whose clock may be another.
package soaking

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Soak is what is known of the step under way.
type Soak struct {
	// From is when soaks begin at the earliest: what was before this process began is known by a clock that may be
	// another.
	From time.Time
	// quiet is since when no daemon has come to the step or left it, and after the newest time in any object of the API
	// that was known then.
	quiet, after time.Time
}

// Begin is for a step that begins. The process did when it says.
func Begin(now, process, api time.Time) Soak { return Soak{From: process, quiet: now, after: api} }

// Stir takes note of a daemon that comes or leaves. api is the newest time in any object of the API.
func (s *Soak) Stir(now, api time.Time) { s.quiet, s.after = now, api }

// Recall goes on where a status stands.
func Recall(status *v1alpha1.DaemonSetRolloutStatus, now time.Time) (s Soak) {
	s.quiet = now.Add(-ptr.Deref(status.Soaked, metav1.Duration{}).Duration)
	if status.Soaked != nil && status.SoakedAfter != nil {
		s.after = status.SoakedAfter.Time
	}
	if status.Step != "" {
		s.From = s.quiet
	}
	return s
}

// Misses reports whether a pod was made after the status that was recalled counted the soak: nobody saw it come.
func (s *Soak) Misses(made time.Time) bool { return !s.after.IsZero() && made.After(s.after) }

// Since is from when something counts that is known to have been since then.
func (s *Soak) Since(at time.Time) time.Time { return deadline.Later(at, s.From) }

// Tell says in a status how long the step has soaked, of the whole time that it is to. It says so a few times only.
func (s *Soak) Tell(out *v1alpha1.DaemonSetRolloutStatus, now time.Time, whole time.Duration) {
	is, _ := s.told(now, whole)
	out.Soaked = &metav1.Duration{Duration: is}
	if after := metav1.NewTime(s.after); !after.IsZero() {
		out.SoakedAfter = &after
	}
}

// More is when Tell says more; zero if it does not.
func (s *Soak) More(now time.Time, whole time.Duration) time.Time {
	_, more := s.told(now, whole)
	return more
}

func (s *Soak) told(now time.Time, whole time.Duration) (is time.Duration, more time.Time) {
	is = now.Sub(s.quiet)
	if is >= whole {
		return whole, time.Time{}
	}
	grain := min(max(whole/10, time.Second), 5*time.Minute)
	is = is.Truncate(grain)
	return is, s.quiet.Add(min(is+grain, whole))
}
