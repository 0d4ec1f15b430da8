package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	"github.com/everynode/everynode/internal/rollout"
)

// order is what somebody wants done.
type order struct {
	DaemonSet string `json:"daemonSet"`
	Verb      string `json:"verb"`
	// Step and Revision are what is approved.
	Step     string `json:"step"`
	Revision string `json:"revision"`
	// Number is the revision to go back to; 0 is the one before.
	Number int64 `json:"number"`
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
		done, err = d.undo(r, namespace, name, o.Number)
	} else {
		done, err = d.steer(r, namespace, name, o)
	}
	answer(w, map[string]string{"done": done}, err)
}

func (d *Dashboard) steer(r *http.Request, namespace, name string, o order) (string, error) {
	verbs := map[string]rollout.Verb{
		"pause": rollout.Pause, "resume": rollout.Resume, "retry": rollout.Retry, "abort": rollout.Abort,
		"approve": rollout.Approve(o.Step, o.Revision),
	}
	verb := verbs[o.Verb]
	if verb == nil {
		return "", fmt.Errorf("%q is not known", o.Verb)
	}
	c, err := rollout.NewClient(d.config.Cluster, namespace, name)
	if err != nil {
		return "", err
	}
	return c.Do(r.Context(), verb)
}

// undo does what "kubectl rollout undo" does.
func (d *Dashboard) undo(r *http.Request, namespace, name string, number int64) (string, error) {
	ds, err := d.core.AppsV1().DaemonSets(namespace).Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	ds.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	back, err := polymorphichelpers.RollbackerFor(ds.GroupVersionKind().GroupKind(), d.core)
	if err != nil {
		return "", fmt.Errorf("undo: %w", err)
	}
	done, err := back.Rollback(ds, map[string]string{}, number, util.DryRunNone)
	if err != nil {
		return "", fmt.Errorf("undo: %w", err)
	}
	return fmt.Sprintf("daemonset %s/%s %s", namespace, name, done), nil
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
		review, err := d.core.AuthorizationV1().SelfSubjectAccessReviews().Create(r.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of},
		}, metav1.CreateOptions{})
		if err != nil {
			answer(w, nil, fmt.Errorf("ask what you may do: %w", err))
			return
		}
		may[what] = review.Status.Allowed
	}
	answer(w, may, nil)
}
