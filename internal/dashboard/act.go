package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/rollout"
)

// order is what somebody wants done.
type order struct {
	DaemonSet string `json:"daemonSet"`
	Verb      string `json:"verb"`
	// Step is what is approved, of the change with the number. Revision is the one that is approved, aborted, tried again,
	// or gone back to.
	Step     string `json:"step"`
	Revision string `json:"revision"`
	Change   int64  `json:"change"`
	// UID and Generation are those of the DaemonSet whose template is to go back, as they were shown.
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
}

// act does what somebody wants done to a rollout, by the caller's rights.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&o); err != nil {
		answer(w, nil, fmt.Errorf("read what is wanted: %w", err))
		return
	}
	namespace, name, err := named(o.DaemonSet)
	if err != nil {
		answer(w, nil, err)
		return
	}
	var done string
	if o.Verb == "undo" {
		done, err = d.undo(r.Context(), namespace, name, o)
	} else {
		done, err = d.steer(r, namespace, name, o)
	}
	answer(w, map[string]string{"done": done}, err)
}

func (d *Dashboard) steer(r *http.Request, namespace, name string, o order) (string, error) {
	verbs := map[string]rollout.Verb{
		"pause": rollout.Pause, "resume": rollout.Resume, "retry": rollout.Retry(o.Revision),
		"abort":   rollout.Abort(o.Revision),
		"approve": rollout.Approve(o.Step, o.Revision, o.Change),
	}
	verb := verbs[o.Verb]
	if o.Revision == "" && (o.Verb == "retry" || o.Verb == "abort") {
		return "", fmt.Errorf("say which revision you %s", o.Verb)
	}
	if verb == nil {
		return "", fmt.Errorf("%q is not known", o.Verb)
	}
	c, err := rollout.NewClient(d.config.Cluster, namespace, name)
	if err != nil {
		return "", err
	}
	return c.Do(r.Context(), verb)
}

// rights tells what the caller may do to a DaemonSet, so that the page offers nothing else.
func (d *Dashboard) rights(w http.ResponseWriter, r *http.Request) {
	namespace, name, err := named(r.URL.Query().Get("daemonset"))
	if err != nil {
		answer(w, nil, err)
		return
	}
	may := map[string]bool{}
	for what, of := range map[string]authorizationv1.ResourceAttributes{
		"steer": {Group: "everynode.io", Resource: "daemonsetrollouts", Verb: "update"},
		"undo":  {Group: "apps", Resource: "daemonsets", Verb: "patch"},
	} {
		of.Namespace, of.Name = namespace, name
		review, err := d.core.AuthorizationV1().SelfSubjectAccessReviews().Create(
			r.Context(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of},
			},
			metav1.CreateOptions{},
		)
		if err != nil {
			answer(w, nil, fmt.Errorf("ask what you may do: %w", err))
			return
		}
		may[what] = review.Status.Allowed
	}
	answer(w, may, nil)
}
