package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "pod-uid"}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("t")}, {Name: "shared", ResourceClaimName: new("s")}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func named(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
	}
}

func onNode(p *corev1.Pod) { p.Spec.NodeName = "n" }

var template = &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{
	ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "x"}, Annotations: map[string]string{"a": "y"}},
	Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r"}}}},
}}

// the claim of a pod, and one that several share.
func own(edits ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	c := made(pod(), &pod().Spec.ResourceClaims[0], template)
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func shared(edits ...func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func allocated(c *resourcev1.ResourceClaim) { c.Status.Allocation = &resourcev1.AllocationResult{} }
func deleted(c *resourcev1.ResourceClaim)   { c.DeletionTimestamp = new(metav1.Now()) }
func guarded(c *resourcev1.ResourceClaim)   { c.Finalizers = []string{"x.com/f", resourcev1.Finalizer} }
func usedBy(uids ...string) func(*resourcev1.ResourceClaim) {
	return func(c *resourcev1.ResourceClaim) {
		for _, uid := range uids {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "p", UID: types.UID(uid)})
		}
	}
}

func TestPod(t *testing.T) {
	name := Name(pod(), &pod().Spec.ResourceClaims[0])
	for what, c := range map[string]struct {
		pod       *corev1.Pod
		claims    []*resourcev1.ResourceClaim
		templates []*resourcev1.ResourceClaimTemplate
		want      string
	}{
		"a new pod":                   {pod(), nil, []*resourcev1.ResourceClaimTemplate{template}, "create " + name + ", name gpu=" + name},
		"made, not named":             {pod(), []*resourcev1.ResourceClaim{own()}, nil, "name gpu=" + name},
		"made and named":              {pod(named(name)), []*resourcev1.ResourceClaim{own()}, nil, ""},
		"named, and gone":             {pod(named(name)), nil, []*resourcev1.ResourceClaimTemplate{template}, "create " + name},
		"named otherwise":             {pod(named("other")), nil, []*resourcev1.ResourceClaimTemplate{template}, "create " + name + ", name gpu=" + name},
		"named by somebody as none":   {pod(func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}} }), nil, nil, ""},
		"no template":                 {pod(), nil, nil, `trouble claim gpu: resource claim template "t" is not there`},
		"another's claim":             {pod(), []*resourcev1.ResourceClaim{own(func(c *resourcev1.ResourceClaim) { c.OwnerReferences[0].UID = "other" })}, nil, "trouble claim gpu: ResourceClaim " + name + " is there and is not this pod's"},
		"its claim goes":              {pod(), []*resourcev1.ResourceClaim{own(deleted)}, nil, "trouble claim gpu: ResourceClaim " + name + " is being deleted"},
		"a pod that goes":             {pod(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }), nil, []*resourcev1.ResourceClaimTemplate{template}, ""},
		"a pod that has ended":        {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), nil, []*resourcev1.ResourceClaimTemplate{template}, ""},
		"without a node":              {pod(named(name)), []*resourcev1.ResourceClaim{own(allocated), shared(allocated)}, nil, ""},
		"on a node":                   {pod(named(name), onNode), []*resourcev1.ResourceClaim{own(allocated), shared(allocated, usedBy("other"))}, nil, "reserve " + name + ", reserve s"},
		"on a node, and known":        {pod(named(name), onNode), []*resourcev1.ResourceClaim{own(allocated, usedBy("pod-uid")), shared()}, nil, ""},
		"on a node, of one that goes": {pod(named(name), onNode), []*resourcev1.ResourceClaim{own(allocated, deleted)}, nil, ""},
	} {
		in := PodInput{Pod: c.pod, Claims: map[string]*resourcev1.ResourceClaim{}, Templates: map[string]*resourcev1.ResourceClaimTemplate{}}
		for _, claim := range c.claims {
			in.Claims[claim.Name] = claim
		}
		for _, t := range c.templates {
			in.Templates[t.Name] = t
		}
		d := Pod(in)
		var got []string
		for _, claim := range d.Create {
			got = append(got, "create "+claim.Name)
		}
		for _, n := range d.Names {
			got = append(got, fmt.Sprintf("name %s=%s", n.Name, *n.ResourceClaimName))
		}
		for _, claim := range d.Reserve {
			if !resourceclaim.IsReservedForPod(c.pod, claim, false) {
				t.Errorf("%s: %s is not kept for the pod", what, claim.Name)
			}
			got = append(got, "reserve "+claim.Name)
		}
		for _, text := range d.Trouble {
			got = append(got, "trouble "+text)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", what, text, c.want)
		}
	}
}

func TestTroubleInFewWords(t *testing.T) {
	p := pod(func(p *corev1.Pod) {
		p.Spec.ResourceClaims = nil
		for i := range 5000 {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprint("c", i), ResourceClaimTemplateName: new("t")})
		}
	})
	d := Pod(PodInput{Pod: p})
	const want = `claim c0: resource claim template "t" is not there; claim c1: resource claim template "t" is not there; claim c2: resource claim template "t" is not there; and 4997 more`
	if d.Text() != want {
		t.Errorf("%d bytes: %.300s, want %s", len(d.Text()), d.Text(), want)
	}
}

func TestMadeOfATemplate(t *testing.T) {
	c := own()
	if c.Labels["l"] != "x" || c.Annotations["a"] != "y" || c.Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" || len(c.Spec.Devices.Requests) != 1 {
		t.Errorf("%+v", c)
	}
	if ref := metav1.GetControllerOf(c); ref == nil || ref.Kind != "Pod" || ref.UID != "pod-uid" || ref.BlockOwnerDeletion == nil {
		t.Errorf("its owner is %+v", ref)
	}
	if template.Spec.Annotations[resourcev1.PodResourceClaimAnnotation] != "" {
		t.Error("the template was changed")
	}
	long := pod(func(p *corev1.Pod) { p.Name = strings.Repeat("p", 200) })
	other := pod(func(p *corev1.Pod) { p.Name, p.UID = long.Name, "other" })
	entry := &corev1.PodResourceClaim{Name: strings.Repeat("c", 63)}
	if name := Name(long, entry); len(name) > 63 || !strings.Contains(name, "p-c") || name == Name(other, entry) {
		t.Errorf("the claim of a long pod is %s", name)
	}
	for i := range 190 { // Wherever the name of a pod is cut, what is left of it is good for the name of a claim.
		p := pod(func(p *corev1.Pod) { p.Name = strings.Repeat("a", i) + strings.Repeat("a.b-c", 12) })
		if errs := validation.IsDNS1123Subdomain(Name(p, entry)); len(errs) > 0 {
			t.Errorf("the claim of %s is %s: %v", p.Name, Name(p, entry), errs)
		}
	}
}

func TestClaim(t *testing.T) {
	type claim = resourcev1.ResourceClaim
	for what, c := range map[string]struct {
		claim     *claim
		done      []string
		ownerDone bool
		want      string
	}{
		"nobody uses it":              {shared(), nil, false, ""},
		"all are there":               {shared(allocated, guarded, usedBy("a", "b")), nil, false, ""},
		"one is done":                 {shared(allocated, guarded, usedBy("a", "b")), []string{"a"}, false, "status b allocated"},
		"all are done":                {shared(allocated, guarded, usedBy("a", "b")), []string{"a", "b"}, false, "status , release"},
		"all are done with another's": {shared(allocated, usedBy("a")), []string{"a"}, false, "status  allocated"},
		"a user that is no pod": {shared(allocated, func(c *claim) {
			c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{APIGroup: "x", Resource: "pods", UID: "a"}}
		}), []string{"a"}, false, ""},
		"deleted, in use":                  {shared(allocated, guarded, deleted, usedBy("a")), nil, false, ""},
		"deleted, allocated":               {shared(allocated, guarded, deleted), nil, false, "status , release"},
		"deleted, free":                    {shared(guarded, deleted), nil, false, "release"},
		"deleted, not ours":                {shared(allocated, deleted), nil, false, ""},
		"just about to be allocated":       {shared(guarded), nil, false, ""},
		"allocated before anybody uses it": {shared(allocated, guarded), nil, false, ""},
		"its pod is done":                  {own(), nil, true, "delete"},
		"its pod is done and uses it":      {own(allocated, guarded, usedBy("a")), []string{"a"}, true, "status , release"},
		"its pod is done, ours":            {own(guarded), nil, true, "release"},
		"its pod is done, deleted":         {own(deleted), nil, true, ""},
		"its pod is done, another uses it": {own(allocated, usedBy("b")), nil, true, ""},
	} {
		in := ClaimInput{Claim: c.claim, Done: map[string]bool{}, OwnerDone: c.ownerDone}
		for _, uid := range c.done {
			in.Done[uid] = true
		}
		d := Claim(in)
		var got []string
		if d.Status != nil {
			var users []string
			for _, u := range d.Status.Status.ReservedFor {
				users = append(users, string(u.UID))
			}
			text := "status " + strings.Join(users, " ")
			if d.Status.Status.Allocation != nil {
				text += " allocated"
			}
			got = append(got, text)
		}
		if d.Release {
			got = append(got, "release")
		}
		if d.Delete {
			got = append(got, "delete")
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q (%s)", what, text, c.want, d.Why)
		}
	}
	if left := Released(shared(guarded)); !slices.Equal(left.Finalizers, []string{"x.com/f"}) {
		t.Errorf("finalizers that stay: %v", left.Finalizers)
	}
}
