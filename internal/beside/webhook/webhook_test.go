package webhook

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

const policiesPath = "/apis/everynode.io/v1alpha1/namespaces/default/rolloutpolicies"

// api is an API server that has a few objects, by their paths. What is not there is not found.
type api map[string]any

func (a api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	obj, is := a[r.URL.Path]
	if !is {
		w.WriteHeader(http.StatusNotFound)
		obj = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	_ = json.NewEncoder(w).Encode(obj)
}

func newServer(t *testing.T, objects http.Handler, fail bool) *Server {
	t.Helper()
	server := httptest.NewServer(objects)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	own, err := everynode.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Client: client, Own: own, Account: "us", Fail: fail})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// post asks about pods or DaemonSets.
func post(t *testing.T, s *Server, about, body string) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	decide := map[string]answer{"pod": s.pod, "daemonset": s.daemonSet, "placement": s.placement,
		"node": s.node}[about]
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	s.handler(t.Context(), about, decide).ServeHTTP(w, r)
	var review admissionv1.AdmissionReview
	if w.Code == http.StatusOK {
		err := json.Unmarshal(w.Body.Bytes(), &review)
		if err != nil || review.Response == nil {
			t.Fatalf("the answer is %q: %v", w.Body, err)
		}
	}
	return w.Code, review.Response
}

// TestHostileQuestions: what is no question gets no answer, and what cannot be read is answered as a failure is.
func TestHostileQuestions(t *testing.T) {
	for _, fail := range []bool{false, true} {
		s := newServer(t, api{}, fail)
		for _, about := range []string{"pod", "daemonset", "placement"} {
			for name, body := range map[string]string{
				"empty": "", "null": "null", "no JSON": "\xff\x00{", "a list": "[]", "no request": `{"kind":"AdmissionReview"}`,
				"huge": `{"request":{"uid":"` + strings.Repeat("a", maxReview) + `"}}`, "deep": strings.Repeat("[", 100000),
			} {
				code, _ := post(t, s, about, body)
				if code != http.StatusBadRequest {
					t.Errorf("%s about a %s is answered with %d", name, about, code)
				}
			}
			for name, object := range map[string]string{
				"missing": "", "null": `"object":null,`, "a text": `"object":"pod",`, "a list": `"object":[1],`,
				"of another kind":          `"object":{"kind":"Secret","spec":7},`,
				"with a number for a name": `"object":{"metadata":{"name":1}},`,
			} {
				code, got := post(t, s, about, `{"request":{"uid":"x",`+object+`"operation":"CREATE","namespace":"default"}}`)
				if code != http.StatusOK || got.UID != "x" || got.Patch != nil {
					t.Fatalf("about a %s that is %s the answer is %d, %+v", about, name, code, got)
				}
				readable := object == `"object":null,`
				if want := about == "pod" && !fail || readable && about == "pod"; got.Allowed != want && !readable {
					t.Errorf("a %s that is %s is allowed: %v, with failure policy %v", about, name, got.Allowed, fail)
				}
			}
		}
		_, got := post(t, s, "daemonset", `{"request":{"operation":"UPDATE","object":{}}}`)
		if got.Allowed {
			t.Error("an update without what was stored is allowed")
		}
		_, got = post(t, s, "pod", `{"request":{"object":{"metadata":{"name":"\u0000ü\ud800日"}}}}`)
		if !got.Allowed || got.Patch != nil {
			t.Errorf("a pod that nothing controls is answered with %+v", got)
		}
	}
}

// set is a DaemonSet that follows a policy.
func set(zone string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1",
			Labels:      map[string]string{"tier": "agent"},
			Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}},
	}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	if zone != "" {
		ds.Spec.Template.Spec.NodeSelector = map[string]string{"zone": zone}
	}
	return ds
}

func raw(t *testing.T, obj any) runtime.RawExtension {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

// written asks whether a DaemonSet may be placed as it is written.
func written(t *testing.T, s *Server, from, to *appsv1.DaemonSet) *admissionv1.AdmissionResponse {
	t.Helper()
	r := &admissionv1.AdmissionRequest{UID: "x", Namespace: "default", Operation: admissionv1.Update, Object: raw(t, to),
		OldObject: raw(t, from)}
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: r})
	if err != nil {
		t.Fatal(err)
	}
	_, got := post(t, s, "placement", string(body))
	return got
}

// TestPlacementIsApproved: whatever a policy asks for, another placement waits for somebody.
func TestPlacementIsApproved(t *testing.T) {
	policies := func(approval v1alpha1.Approval) *v1alpha1.RolloutPolicyList {
		return &v1alpha1.RolloutPolicyList{Items: []v1alpha1.RolloutPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agents"},
			Spec: v1alpha1.RolloutPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "agent"}},
				Waves: []v1alpha1.Wave{{Name: "canary", Approval: approval}}},
		}}}
	}
	hash, err := admit.Moves{To: &set("b").Spec.Template.Spec}.Hash()
	if err != nil {
		t.Fatal(err)
	}
	rollout := func(owner, approved string) *v1alpha1.DaemonSetRollout {
		return &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
			Labels:      map[string]string{rollouts.OwnerLabel: owner},
			Annotations: map[string]string{v1alpha1.ApprovedPlacement: approved}}}
	}
	manual := policies(v1alpha1.ApprovalManual)
	for name, c := range map[string]struct {
		objects api
		allowed bool
	}{
		"no wave waits for anybody":            {api{policiesPath: policies("")}, false},
		"nobody has approved":                  {api{policiesPath: manual}, false},
		"the kind was taken away":              {api{}, true},
		"it is approved":                       {api{policiesPath: manual, rolloutPath: rollout("1", hash)}, true},
		"another is approved":                  {api{policiesPath: manual, rolloutPath: rollout("1", "sha256:00")}, false},
		"it was approved for one that is gone": {api{policiesPath: manual, rolloutPath: rollout("0", hash)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, c.objects, false)
			for _, zone := range []string{"a", "b"} {
				s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: zone, Labels: map[string]string{"zone": zone}}})
			}
			got := written(t, s, set("a"), set("b"))
			if got.Allowed != c.allowed {
				t.Fatalf("the answer is %+v", got)
			}
			command := "everynode rollout approve daemonset/agent -n default --placement " + hash
			if !c.allowed && !strings.Contains(got.Result.Message, command) {
				t.Errorf("it says %s", got.Result.Message)
			}
			same := set("a")
			same.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "other"}}
			if got = written(t, s, set("a"), same); !got.Allowed {
				t.Errorf("another image is refused: %s", got.Result.Message)
			}
		})
	}
}

// TestAPodOfADaemonSetThatIsUnknown: without the DaemonSet or its rollout a pod is as it was made, and while the API
// does not answer nobody knows.
func TestAPodOfADaemonSetThatIsUnknown(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1", Controller: ptr.To(true)},
	}}}
	other := set("")
	other.UID = "2"
	ask := func(s *Server) *admissionv1.AdmissionResponse {
		r := &admissionv1.AdmissionRequest{Namespace: "default", Object: raw(t, pod)}
		body, err := json.Marshal(admissionv1.AdmissionReview{Request: r})
		if err != nil {
			t.Fatal(err)
		}
		_, got := post(t, s, "pod", string(body))
		return got
	}
	for name, objects := range map[string]api{
		"no DaemonSet": {}, "no rollout": {setPath: set("")}, "another one": {setPath: other},
	} {
		if got := ask(newServer(t, objects, true)); !got.Allowed || got.Patch != nil {
			t.Errorf("%s: the answer is %+v", name, got)
		}
	}
	broken := api{setPath: set(""), rolloutPath: "no object"}
	if got := ask(newServer(t, broken, true)); got.Allowed {
		t.Error("with Fail a pod is admitted about which nothing is known")
	}
	if got := ask(newServer(t, broken, false)); !got.Allowed || got.Patch != nil {
		t.Errorf("with Ignore the answer is %+v", got)
	}
}
