package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

const (
	mapsPath    = "/api/v1/namespaces/default/configmaps/"
	secretsPath = "/api/v1/namespaces/default/secrets/"
	setPath     = "/apis/apps/v1/namespaces/default/daemonsets/agent"
	rolloutPath = "/apis/everynode.io/v1alpha1/namespaces/default/daemonsetrollouts/agent"
)

// levels is a copy with a level, and tokens one with a token.
func levels(level string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Data: map[string]string{"level": level}, Immutable: ptr.To(true)}
}

func tokens(token string) *corev1.Secret {
	return &corev1.Secret{Data: map[string][]byte{"token": []byte(token)}, Immutable: ptr.To(true)}
}

// controlled says that the DaemonSet controls an object.
var controlled = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1",
	Controller: ptr.To(true)}}

// world is an API with a DaemonSet whose content is a ConfigMap and a Secret, and the content's ID.
func world(t *testing.T) (api, content.Content) {
	t.Helper()
	conf, token := levels("info"), tokens("secret")
	key := []byte(strings.Repeat("k", 32))
	refs := []content.Ref{{Kind: content.ConfigMap, Name: "conf"}, {Kind: content.Secret, Name: "token"}}
	c, err := content.Of(key, "agent", refs, func(ref content.Ref) ([]byte, error) {
		if ref.Kind == content.Secret {
			return content.Hash(key, "agent", ref, content.OfSecret(token))
		}
		return content.Hash(key, "agent", ref, content.OfConfigMap(conf))
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	ds := set("")
	ds.Spec.Template.Labels = map[string]string{"app": "agent"}
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "agent:1",
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("conf")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("token")}}}}}
	raw, err := history.Patch(&ds.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	revision := "hash." + c.ID
	return api{
		setPath: ds,
		rolloutPath: &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
			Labels: map[string]string{rollouts.OwnerLabel: "1"}},
			Status: v1alpha1.DaemonSetRolloutStatus{StableRevision: revision, TargetRevision: revision}},
		"/apis/apps/v1/namespaces/default/controllerrevisions": &appsv1.ControllerRevisionList{Items: []appsv1.ControllerRevision{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-hash", UID: "r",
				Labels:          map[string]string{appsv1.ControllerRevisionHashLabelKey: "hash"},
				OwnerReferences: controlled},
			Data: runtime.RawExtension{Raw: raw},
		}}},
		policiesPath: &v1alpha1.RolloutPolicyList{Items: []v1alpha1.RolloutPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agents"},
			Spec: v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "canary", Count: ptr.To[int32](1)}},
				Content: &v1alpha1.Content{ConfigMaps: v1alpha1.ContentReferenced,
					Secrets: v1alpha1.ContentReferenced}},
		}}},
		mapsPath + content.ManifestName("agent", c.ID): &corev1.ConfigMap{Data: list},
		mapsPath + c.Members[0].Copy:                   levels("info"),
		secretsPath + c.Members[1].Copy:                tokens("secret"),
		secretsPath + content.KeyName:                  &corev1.Secret{Data: map[string][]byte{"key": key}},
	}, c
}

// made asks about a pod that is made of the DaemonSet's template.
func made(t *testing.T, s *Server, of api) *admissionv1.AdmissionResponse {
	t.Helper()
	ds := of[setPath].(*appsv1.DaemonSet)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": "agent",
		appsv1.ControllerRevisionHashLabelKey: "hash"}, OwnerReferences: controlled},
		Spec: *ds.Spec.Template.Spec.DeepCopy()}
	pod.Spec.Affinity = placement.PinToNode(nil, "node-1")
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{Namespace: "default",
		Object: raw(t, pod)}})
	if err != nil {
		t.Fatal(err)
	}
	_, got := post(t, s, "pod", string(body))
	return got
}

// TestAPodGetsTheCopiesOfItsContent, and nothing that somebody has put in their place.
func TestAPodGetsTheCopiesOfItsContent(t *testing.T) {
	objects, c := world(t)
	s := newServer(t, objects, true)
	got := made(t, s, objects)
	if !got.Allowed {
		t.Fatalf("the pod is refused: %+v", got.Result)
	}
	for _, says := range []string{`"/spec/containers/0/envFrom/0/configMapRef/name","value":"` + c.Members[0].Copy,
		`"/spec/containers/0/envFrom/1/secretRef/name","value":"` + c.Members[1].Copy,
		`"/metadata/labels/everynode.io~1revision","value":"hash.` + c.ID} {
		if !strings.Contains(string(got.Patch), says) {
			t.Errorf("the patch does not say %s: %s", says, got.Patch)
		}
	}
	if strings.Contains(string(got.Patch), "generation") {
		t.Errorf("a pod of the right template loses its generation: %s", got.Patch)
	}
	other := content.Content{ID: strings.Repeat("a", 24), Digest: c.Digest, Members: c.Members}
	listed, err := other.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	const spoiled = "was changed after it was made"
	list, another := mapsPath+content.ManifestName("agent", c.ID), &corev1.ConfigMap{Data: listed}
	mutable := &corev1.ConfigMap{Data: map[string]string{"level": "info"}}
	for name, spoil := range map[string]struct {
		path string
		with any
		says string
	}{
		"a copy is gone":              {mapsPath + c.Members[0].Copy, nil, "it is gone"},
		"the list is gone":            {list, nil, "it is gone"},
		"the key is gone":             {secretsPath + content.KeyName, nil, "read the key of contents"},
		"another ConfigMap":           {mapsPath + c.Members[0].Copy, levels("debug"), spoiled},
		"another Secret":              {secretsPath + c.Members[1].Copy, tokens("x"), spoiled},
		"a ConfigMap that may change": {mapsPath + c.Members[0].Copy, mutable, spoiled},
		"another key": {secretsPath + content.KeyName, &corev1.Secret{Data: map[string][]byte{"key": make([]byte, 32)}},
			"Secret everynode-content-key is another than that with which it was made"},
		"no list":                     {list, &corev1.ConfigMap{}, spoiled},
		"the list of another content": {list, another, spoiled},
		"something else is a list":    {list, "no object", "read ConfigMap"},
		"something else is a copy":    {secretsPath + c.Members[1].Copy, "no object", "read Secret"},
		"something else is the key":   {secretsPath + content.KeyName, &corev1.Secret{}, "holds no key"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, _ := world(t)
			objects[spoil.path] = spoil.with
			if spoil.with == nil {
				delete(objects, spoil.path)
			}
			got := made(t, newServer(t, objects, true), objects)
			if got.Allowed || !strings.Contains(got.Result.Message, spoil.says) {
				t.Errorf("the answer is %+v", got)
			}
			if strings.Contains(got.Result.Message, "secret") && !strings.Contains(got.Result.Message, "Secret") {
				t.Errorf("it tells the value: %s", got.Result.Message)
			}
			if got = made(t, newServer(t, objects, false), objects); got.Allowed {
				t.Error("where what is not known is admitted, the pod reads what nobody has let go out")
			}
		})
	}
}

// TestManyPodsAtOnceReadTheirContentOnce: kube-controller-manager makes hundreds of pods at a time, and each must get
// its content.
func TestManyPodsAtOnceReadTheirContentOnce(t *testing.T) {
	objects, c := world(t)
	var asked atomic.Int32
	path := mapsPath + content.ManifestName("agent", c.ID)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			asked.Add(1)
			time.Sleep(50 * time.Millisecond) // so that all others come meanwhile
		}
		objects.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	read := contents{client: client, now: time.Now, read: map[given]proven{}}
	var all sync.WaitGroup
	for range 250 {
		all.Go(func() {
			members, err := read.members(t.Context(), objects[setPath].(*appsv1.DaemonSet), c.ID)
			if err != nil || len(members) != 2 {
				t.Errorf("a pod gets %v (%v)", members, err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the list was read %d times", n)
	}
}

// TestAnAPIThatDoesNotAnswerTakesNoContentAway that was there before.
func TestAnAPIThatDoesNotAnswerTakesNoContentAway(t *testing.T) {
	objects, c := world(t)
	s := newServer(t, objects, true)
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s.contents.now = func() time.Time { return now }
	ds := objects[setPath].(*appsv1.DaemonSet)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.contents.members(ended, ds, c.ID)
	if err == nil {
		t.Error("what was never read is known")
	}
	_, err = s.contents.members(t.Context(), ds, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(trustFor)
	members, err := s.contents.members(ended, ds, c.ID)
	if err != nil || len(members) != 2 {
		t.Errorf("it is %v (%v)", members, err)
	}
}

// clocked is a server whose contents go by a clock that is put forward by hand, and wants tells what becomes of a pod
// that is made.
func clocked(t *testing.T, objects api) (s *Server, now *time.Time, wants func(what string, allowed bool)) {
	t.Helper()
	s = newServer(t, objects, true)
	now = ptr.To(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	s.contents.now = func() time.Time { return *now }
	return s, now, func(what string, allowed bool) {
		t.Helper()
		if got := made(t, s, objects); got.Allowed != allowed || got.Allowed && got.Patch == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestACopyThatIsReplacedIsNoticed within seconds, and one that is deleted holds up nobody: it is made again.
func TestACopyThatIsReplacedIsNoticed(t *testing.T) {
	objects, c := world(t)
	s, now, wants := clocked(t, objects)
	path := mapsPath + c.Members[0].Copy
	copied := objects[path]
	wants("as it was made", true)
	delete(objects, path)
	*now = now.Add(trustFor)
	wants("it is gone", true)
	objects[path] = levels("debug")
	wants("another is there", false)
	objects[path] = copied
	wants("it is made again", true)
	objects[path] = levels("debug")
	*now = now.Add(trustFor - 1)
	wants("within seconds", true)
	*now = now.Add(1)
	wants("after them", false)
	*now = now.Add(forgetAfter + 1)
	wants("much later", false)
	if len(s.contents.read) != 0 {
		t.Errorf("what nobody has asked for is kept: %v", s.contents.read)
	}
}

// TestWhatIsGoneHidesNothingThatIsReplaced: while a copy or the list is gone, or the list is another, each copy is
// read and hashed all the same.
func TestWhatIsGoneHidesNothingThatIsReplaced(t *testing.T) {
	_, c := world(t)
	list, second := mapsPath+content.ManifestName("agent", c.ID), secretsPath+c.Members[1].Copy
	short := content.Content{ID: c.ID, Digest: c.Digest, Members: []content.Member{{Ref: c.Members[0].Ref, Copy: "no-such"}}}
	shorter, err := short.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(api){
		"the copy before it is gone": func(o api) { delete(o, mapsPath+c.Members[0].Copy) },
		"the list is gone":           func(o api) { delete(o, list) },
		"the list leaves it out":     func(o api) { o[list] = &corev1.ConfigMap{Data: shorter} },
	} {
		objects, _ := world(t)
		_, now, wants := clocked(t, objects)
		wants("as it was made", true)
		*now = now.Add(trustFor)
		spoil(objects)
		objects[second] = tokens("evil")
		wants("the second copy is another, and "+name, false)
	}
}

// TestAProofDoesNotCountForEver: while a copy is gone pods are made of what was whole a short time ago; without the list
// they are made as long as the copies are what its ID says.
func TestAProofDoesNotCountForEver(t *testing.T) {
	objects, c := world(t)
	_, now, wants := clocked(t, objects)
	wants("as it was made", true)
	first := mapsPath + c.Members[0].Copy
	copied := objects[first]
	delete(objects, first)
	*now = now.Add(proofLasts - 1)
	wants("a copy is gone", true)
	*now = now.Add(1)
	wants("a copy is gone for long", false)
	objects[first] = copied
	wants("it is back", true)
	delete(objects, mapsPath+content.ManifestName("agent", c.ID))
	for range 3 {
		*now = now.Add(proofLasts)
		wants("the list is gone", true)
	}
}

// TestAPodOfANewDaemonSetIsMadeLater: until its copies are there it would read its author's objects.
func TestAPodOfANewDaemonSetIsMadeLater(t *testing.T) {
	objects, _ := world(t)
	leftover := objects[rolloutPath].(*v1alpha1.DaemonSetRollout).DeepCopy()
	leftover.Labels[rollouts.OwnerLabel] = "0"
	begun := objects[rolloutPath].(*v1alpha1.DaemonSetRollout).DeepCopy()
	begun.Status = v1alpha1.DaemonSetRolloutStatus{}
	for name, rollout := range map[string]*v1alpha1.DaemonSetRollout{
		"none": nil, "that of one before it": leftover, "without a target": begun,
	} {
		objects[rolloutPath] = rollout
		if rollout == nil {
			delete(objects, rolloutPath)
		}
		ds := objects[setPath].(*appsv1.DaemonSet)
		ds.CreationTimestamp = metav1.Now()
		got := made(t, newServer(t, objects, false), objects)
		if got.Allowed || !strings.Contains(got.Result.Message, "is still being copied for its rollout") {
			t.Errorf("with a rollout that is %s the answer is %+v", name, got)
		}
		ds.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
		got = made(t, newServer(t, objects, true), objects)
		if !got.Allowed || got.Patch != nil {
			t.Errorf("later, with a rollout that is %s, the answer is %+v", name, got)
		}
	}
}
