package fact

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Resize adds what became of other amounts that the running pod was to be given. To its revision it is another pod from
// then on: it was made when they were asked for, and is available once it has them. Called after Point.
func (i *Pod) Resize(p *corev1.Pod) {
	i.Between = resizing.IsBetween(p)
	r := resizing.RecordOf(p)
	if r == nil {
		return
	}
	at, shows := r.At.UTC(), i.Pointed.IsZero() || !i.Mounted.IsZero()
	if !at.Before(i.Pointed) {
		i.Resized, i.Pointed, i.Before = true, at, standing.Before(r.Was)
		i.since(p, r.Restarts, r.RestartsBy)
	}
	state, message := r.StateOf(p)
	switch state {
	case resizing.Done, resizing.Impossible: // with the latter it goes on as it was
		if shows {
			i.Mounted = deadline.Later(i.Mounted, at)
		}
		return
	case resizing.NoRoom:
		i.Unplaceable = message
	case resizing.UnderWay:
		i.Trouble = cmp.Or(i.Trouble, message)
	}
	i.Resized, i.Mounted = true, time.Time{}
}
