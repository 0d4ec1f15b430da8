package claim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func TestSettle(t *testing.T) {
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: "set"}}
	other := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "set", UID: "other"}}
	going := set.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{}
	pod := func(name, app string, owner *appsv1.ReplicaSet) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
		if owner != nil {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
		}
		return p
	}
	mine, free, foreign, stray := pod("mine", "a", set), pod("free", "a", nil), pod("foreign", "a", other), pod("stray", "b", set)
	at := func(version string, p *corev1.Pod) *corev1.Pod {
		p = p.DeepCopy()
		p.ResourceVersion = version
		return p
	}
	gone := apierrors.NewNotFound(corev1.Resource("pods"), "x")
	for _, c := range []struct {
		name    string
		pods    []*corev1.Pod
		live    *appsv1.ReplicaSet
		liveErr error
		patch   error
		want    string // what is the owner's, and which patches were sent
		err     string
	}{
		{"all sorts", []*corev1.Pod{mine, free, foreign, stray}, set, nil, nil, "mine free; adopt free, release stray", ""},
		{"twice the same", []*corev1.Pod{mine, mine, free, free}, set, nil, nil, "mine free; adopt free", ""},
		{"it was taken away since", []*corev1.Pod{at("9", pod("it", "a", set)), mine, at("10", pod("it", "a", nil))}, set, nil, nil, "it mine; adopt it", ""},
		{"it was adopted since", []*corev1.Pod{at("10", pod("it", "a", set)), mine, at("9", pod("it", "a", nil))}, set, nil, nil, "it mine; ", ""},
		{"two adoptions ask once", []*corev1.Pod{free, pod("free2", "a", nil)}, set, nil, nil, "free free2; adopt free, adopt free2", ""},
		{"they vanish", []*corev1.Pod{mine, free, stray}, set, nil, gone, "mine; adopt free, release stray", ""},
		{"the owner is another by now", []*corev1.Pod{mine, free}, other, nil, nil, "", "original ReplicaSet ns/set is gone: got uid other, wanted set"},
		{"the owner is going", []*corev1.Pod{free}, going, nil, nil, "", "has just been deleted"},
		{"the owner cannot be read", []*corev1.Pod{free}, nil, errors.New("no answer"), nil, "", "adopt free: read its future owner: no answer"},
		{"adopting fails", []*corev1.Pod{free}, set, nil, errors.New("busy"), "", "adopt free: busy"},
		{"releasing fails", []*corev1.Pod{stray}, set, nil, errors.New("busy"), "", "release stray: busy"},
		{"nothing to adopt asks nobody", []*corev1.Pod{mine}, nil, errors.New("must not be asked"), nil, "mine; ", ""},
	} {
		var sent, owned, told []string
		asked := 0
		got, err := Settle(Owner[*corev1.Pod]{
			Object: set, Kind: kind, Selector: labels.SelectorFromSet(labels.Set{"app": "a"}),
			Live: func() (metav1.Object, error) { asked++; return c.live, c.liveErr },
			Patch: func(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
				verb := "adopt"
				if strings.Contains(string(patch), "$patch") {
					verb = "release"
				}
				if !strings.Contains(string(patch), fmt.Sprintf(`"uid":%q`, p.UID)) {
					t.Errorf("%s: the patch %s does not name the UID of %s", c.name, patch, p.Name)
				}
				sent = append(sent, verb+" "+p.Name)
				return p, c.patch
			},
			Adopted: func(p *corev1.Pod) { told = append(told, p.Name) },
		}, c.pods)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
			continue
		}
		for _, p := range got {
			owned = append(owned, p.Name)
		}
		if text := strings.Join(owned, " ") + "; " + strings.Join(sent, ", "); err != nil || text != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, text, err, c.want)
		}
		if asked > 1 {
			t.Errorf("%s: the owner was read %d times", c.name, asked)
		}
		if c.patch == nil && len(told) != strings.Count(c.want, "adopt ") {
			t.Errorf("%s: told of the adoption of %q", c.name, told)
		}
	}
}

func TestKey(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "not a controller"}}}}
	if got := Key(p); got != Nobody {
		t.Errorf("the key is %q, want %q", got, Nobody)
	}
	p.OwnerReferences = append(p.OwnerReferences, *metav1.NewControllerRef(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}}, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
	if got := Key(p); got != "set" {
		t.Errorf("the key is %q, want set", got)
	}
}
