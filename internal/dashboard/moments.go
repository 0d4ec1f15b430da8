package dashboard

import (
	"net/http"
	"net/url"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/dashboard/timeline"
)

// moments is when a rollout did what.
type moments struct {
	Moments []timeline.Moment `json:"moments"`
	// Missing says what could not be read, and why.
	Missing []string `json:"missing,omitempty"`
}

// timeline tells when the rollout of a DaemonSet did what. It reads the objects themselves: what the watches keep is
// without who wrote them.
func (d *Dashboard) timeline(w http.ResponseWriter, r *http.Request) {
	in := timeline.Input{Now: time.Now()}
	err := d.ofSet(r, func(s *survey.Survey, ds *appsv1.DaemonSet) error {
		in.Revisions, in.DaemonSet = revisionsOf(s, ds), ds
		return nil
	})
	if err != nil {
		answer(w, nil, err)
		return
	}
	ctx, namespace, name := r.Context(), in.DaemonSet.Namespace, in.DaemonSet.Name
	in.DaemonSet, err = d.core.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		answer(w, nil, err)
		return
	}
	out := moments{}
	if d.cluster.ownKinds().rollouts != nil {
		rollout, err := d.cluster.own.DaemonSetRollouts(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			in.Rollout = rollout
		case !apierrors.IsNotFound(err):
			out.Missing = append(out.Missing, firstLine(err.Error()))
		}
	}
	var more bool
	in.Events, _, more, err = newest(
		ctx, d.core.CoreV1().Events(namespace), eventsOf(url.Values{"kind": {"DaemonSet"}, "name": {name}}),
	)
	if err != nil {
		out.Missing = append(out.Missing, "events cannot be read: "+firstLine(err.Error()))
	}
	if more {
		out.Missing = append(out.Missing, "there are more events than were looked at")
	}
	out.Moments = timeline.Of(in)
	answer(w, out, nil)
}
