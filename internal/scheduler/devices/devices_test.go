package devices

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const driver = "d.example.com"

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// offer is a slice of a node with so many devices, of a model each.
func offer(of string, devices int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: of, UID: types.UID("slice-" + of)}}
	s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &of, Pool: resourcev1.ResourcePool{Name: of, ResourceSliceCount: 1}}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: new(fmt.Sprintf("m%d", i))}}})
	}
	return s
}

func claim(name string, edits ...func(*resourcev1.ExactDeviceRequest)) *resourcev1.ResourceClaim {
	wanted := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	for _, edit := range edits {
		edit(wanted)
	}
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: wanted}}}}}
}

func user(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("pod-" + name)}}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
	}
	return p
}

func book(objects ...any) *Book {
	b := New(clock.RealClock{})
	b.SetClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourcev1.DeviceClassSpec{Selectors: choosing(`device.driver == "d.example.com"`)}})
	for _, o := range objects {
		switch o := o.(type) {
		case *resourcev1.ResourceSlice:
			b.SetSlice(o)
		case *resourcev1.ResourceClaim:
			b.SetClaim(o)
		}
	}
	b.Known()
	return b
}

func choosing(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

// give has a pod get a node, and the API show it.
func give(t *testing.T, b *Book, p *corev1.Pod, on string) []Gift {
	t.Helper()
	gifts, err := b.Gifts(p, node(on))
	if err != nil {
		t.Fatalf("%s on %s: %v", p.Name, on, err)
	}
	for _, g := range gifts {
		b.Promise(g.Next)
		b.SetClaim(g.Next)
	}
	return gifts
}

func TestWhatIsMissing(t *testing.T) {
	of := func(p *corev1.Pod, owner types.UID) *corev1.Pod {
		p.Spec.ResourceClaims[0].ResourceClaimTemplateName, p.Spec.ResourceClaims[0].ResourceClaimName = new("t"), nil
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: p.Spec.ResourceClaims[0].Name, ResourceClaimName: new("c")}}
		p.UID = owner
		return p
	}
	all := func(r *resourcev1.ExactDeviceRequest) {
		r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	deleted := claim("deleted")
	deleted.DeletionTimestamp = new(metav1.Now())
	b := book(offer("n1", 2), offer("n2", 1), claim("c"), claim("many", func(r *resourcev1.ExactDeviceRequest) { r.Count = 3 }),
		claim("m1", func(r *resourcev1.ExactDeviceRequest) {
			r.Selectors = choosing(`device.attributes["d.example.com"].model == "m1"`)
		}),
		claim("bad", func(r *resourcev1.ExactDeviceRequest) {
			r.Selectors = choosing(`device.attributes["d.example.com"].other == "x"`)
		}),
		claim("no class", func(r *resourcev1.ExactDeviceRequest) { r.DeviceClassName = "none" }), claim("all", all), deleted)
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		on      string
		problem bool
		want    string
	}{
		"a device":            {user("p", "c"), "n1", false, ""},
		"two claims":          {user("p", "c", "m1"), "n1", false, ""},
		"one has too few":     {user("p", "c", "m1"), "n2", false, TextNone},
		"no device":           {user("p", "c"), "n3", false, TextNone},
		"too many":            {user("p", "many"), "n1", false, TextNone},
		"all":                 {user("p", "all"), "n1", false, ""},
		"another model":       {user("p", "m1"), "n2", false, TextNone},
		"no claim":            {user("p", "gone"), "n1", true, `resourceclaim "gone" not found`},
		"no class":            {user("p", "no class"), "n1", true, "request r: device class none does not exist"},
		"a deleted claim":     {user("p", "deleted"), "n1", true, `resourceclaim "deleted" is being deleted`},
		"another pod's claim": {of(user("p", "c"), "x"), "n1", true, `resourceclaim "c" was not created for the pod`},
	} {
		q := b.Ask(c.pod)
		if (q.Problem() != "") != c.problem || q.Missing(node(c.on)) != c.want {
			t.Errorf("%s: %q, %q, want %q", name, q.Problem(), q.Missing(node(c.on)), c.want)
		}
	}
	if text := b.Ask(user("p", "bad")).Missing(node("n1")); text == "" {
		t.Error("an expression that fails chooses a device")
	}
	if b.Ask(user("p")) != nil {
		t.Error("a pod without claims is asked about")
	}
	unread := book(offer("n1", 1), claim("c"))
	unread.known = false
	if text := unread.Ask(user("p", "c")).Problem(); text == "" {
		t.Error("devices are given before all are known")
	}
}

func TestADeviceIsGivenOnce(t *testing.T) {
	b := book(offer("n1", 2), offer("n2", 2), claim("a"), claim("b"), claim("c"))
	first, err := b.Gifts(user("a", "a"), node("n1"))
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	next := first[0].Next
	if len(next.Finalizers) != 1 || len(next.Status.ReservedFor) != 1 || len(next.Status.Allocation.Devices.Results) != 1 || Node(next) != "n1" {
		t.Errorf("%+v", next)
	}
	b.Promise(next)
	if text := b.Ask(user("e", "a")).Problem(); !strings.Contains(text, "in the process of being allocated") {
		t.Errorf("a claim that is being written: %q", text)
	}
	if gifts, err := b.Gifts(user("e", "a"), node("n1")); err == nil {
		t.Errorf("it is written by another pod, too: %+v", gifts)
	}
	give(t, b, user("b", "b"), "n1")
	if text := b.Ask(user("c", "c")).Missing(node("n1")); text != TextNone {
		t.Errorf("a third of two devices: %q", text)
	}
	protected := first[0].Was.DeepCopy() // the first of the two writes shows
	protected.Finalizers = next.Finalizers
	b.SetClaim(protected)
	if text := b.Ask(user("c", "c")).Missing(node("n1")); text != TextNone {
		t.Errorf("while a claim is written its device is given away: %q", text)
	}
	b.Forget(next)
	give(t, b, user("c", "c"), "n1")
	if text := b.Ask(user("a", "a")).Missing(node("n1")); text != TextNone {
		t.Errorf("a promise that was taken back: %q", text)
	}
	// Whoever shares a claim goes where it is, and is added to its users.
	if text := b.Ask(user("d", "c")).Missing(node("n2")); text != TextElsewhere {
		t.Errorf("far from the device: %q", text)
	}
	gifts := give(t, b, user("d", "c"), "n1")
	if len(gifts) != 1 || len(gifts[0].Next.Status.ReservedFor) != 2 || len(gifts[0].Next.Finalizers) != 1 {
		t.Errorf("%+v", gifts)
	}
	if again := give(t, b, user("d", "c"), "n1"); len(again) != 0 {
		t.Errorf("written again: %+v", again)
	}
	if stuck := b.Stuck(user("d", "c")); len(stuck) != 0 {
		t.Errorf("a device that another pod uses is given back: %+v", stuck)
	}
	if stuck := b.Stuck(user("b", "b")); len(stuck) != 1 || stuck[0].Next.Status.Allocation != nil {
		t.Errorf("a device that only the pod holds is not given back: %+v", stuck)
	}
}

// TestTakenIsWhatClaimsHave plays random events, and counts after each from nothing which devices are taken.
func TestTakenIsWhatClaimsHave(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := book(offer("n1", 3), offer("n2", 3))
	var promised []*resourcev1.ResourceClaim
	for step := range 3000 {
		name := fmt.Sprintf("c%d", random.IntN(8))
		known := b.claims["ns/"+name]
		switch event := random.IntN(5); {
		case known == nil:
			fresh := claim(name)
			fresh.UID = types.UID(fmt.Sprint(name, step))
			b.SetClaim(fresh)
		case event == 0:
			b.DeleteClaim(known)
		case event == 1 && known.Status.Allocation != nil:
			freed := known.DeepCopy()
			freed.Status = resourcev1.ResourceClaimStatus{}
			b.SetClaim(freed)
		case event == 2 && len(promised) > 0:
			b.Forget(promised[random.IntN(len(promised))])
		case event == 3 && len(promised) > 0:
			if p := promised[random.IntN(len(promised))]; b.promised[p.UID] != nil && b.promised[p.UID].next == p { // what was taken back is not written
				b.SetClaim(p)
			}
		default:
			if gifts, err := b.Gifts(user(fmt.Sprint("p", step), name), node(fmt.Sprintf("n%d", 1+random.IntN(2)))); err == nil {
				for _, g := range gifts {
					b.Promise(g.Next)
					promised = append(promised, g.Next)
				}
			}
		}
		want := map[string]int{}
		for key := range b.claims {
			if c := b.claim(key); c.Status.Allocation != nil {
				for _, r := range c.Status.Allocation.Devices.Results {
					want[r.Pool+"/"+r.Device]++
				}
			}
		}
		for id, times := range want {
			if times > 1 {
				t.Fatalf("step %d: %s was given %d times", step, id, times)
			}
		}
		if len(want) != b.taken.Len() || len(want) != len(b.counts) {
			t.Fatalf("step %d: %d devices count as taken, %d are: %v %v", step, b.taken.Len(), len(want), b.taken, want)
		}
	}
}

// A claim that gave back its devices and went before anybody looked had them until then.
func TestAClaimThatWent(t *testing.T) {
	b := book(offer("n1", 1), claim("a"))
	gifts := give(t, b, user("a", "a"), "n1")
	last := gifts[0].Next.DeepCopy()
	last.Status = resourcev1.ResourceClaimStatus{}
	if before := b.DeleteClaim(last); Node(before) != "n1" || b.taken.Len() != 0 {
		t.Errorf("it was %+v, and %v count as taken", before, b.taken)
	}
	b.SetClaim(claim("b"))
	gifts, err := b.Gifts(user("b", "b"), node("n1"))
	if err != nil {
		t.Fatal(err)
	}
	b.Promise(gifts[0].Next)
	if another := gifts[0].Next.DeepCopy(); b.Forget(another) || b.taken.Len() != 1 {
		t.Error("what was promised because of one pod is taken back because of another")
	}
}

func TestOnlyPoolsNearANodeAreLookedAt(t *testing.T) {
	shared := offer("shared", 1)
	shared.Spec.NodeName, shared.Spec.AllNodes = nil, new(true)
	b := book(offer("n1", 1), offer("n2", 1), shared)
	if near := b.near("n1"); len(near) != 2 {
		t.Errorf("%d slices are near n1, want 2", len(near))
	}
	b.DeleteSlice(shared)
	b.SetSlice(offer("n1", 2))
	if near := b.near("n1"); len(near) != 1 || len(near[0].Spec.Devices) != 2 {
		t.Errorf("after changes: %v", near)
	}
	b.DeleteSlice(offer("n1", 2))
	if len(b.near("n1")) != 0 || len(b.onNode) != 1 || len(b.anywhere) != 0 || len(b.slices) != 1 {
		t.Errorf("what is gone is remembered: %v %v", b.onNode, b.anywhere)
	}
}

// A claim for which a search would never end costs other pods a bounded time: the nodes that are left are not looked at.
func TestASearchWithoutAnEndIsGivenUp(t *testing.T) {
	halves := func(of string) *resourcev1.ResourceSlice {
		s := offer(of, 30)
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].Attributes["half"] = resourcev1.DeviceAttribute{BoolValue: new(i%2 == 0)}
		}
		return s
	}
	wanted := claim("c", func(r *resourcev1.ExactDeviceRequest) { r.Count = 16 }) // of one half, which has 15
	wanted.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: new(resourcev1.FullyQualifiedName("d.example.com/half"))}}
	b := book(halves("n1"), halves("n2"), wanted, claim("easy"))
	b.patience = 50 * time.Millisecond
	q := b.Ask(user("p", "c"))
	for _, name := range []string{"n1", "n2"} {
		if text := q.Missing(node(name)); text != TextTooLong {
			t.Errorf("%s: %q", name, text)
		}
	}
	if text := b.Ask(user("q", "easy")).Missing(node("n1")); text != "" {
		t.Errorf("the next pod: %q", text)
	}
}

// A promise whose write is over ends when the API shows that version or a later one, also if a watch that was cut off hid what was written.
func TestAPromiseEndsWithWhatTheAPIShows(t *testing.T) {
	for name, c := range map[string]struct {
		written, before, shown string
		ends, kept             bool // at once, and after what is shown
	}{
		"a later version":              {"7", "5", "9", false, false},
		"that version":                 {"7", "5", "7", false, false},
		"an earlier one":               {"7", "5", "6", false, true},
		"the write is not over":        {"", "5", "9", false, true},
		"it was shown long ago":        {"7", "8", "9", true, false},
		"of another number of figures": {"10", "5", "9", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := book(offer("n1", 1), claim("a"), claim("b"))
			gifts, err := b.Gifts(user("a", "a"), node("n1"))
			if err != nil {
				t.Fatal(err)
			}
			b.Promise(gifts[0].Next)
			show := func(version string) {
				empty := claim("a")
				empty.ResourceVersion = version
				b.SetClaim(empty)
			}
			show(c.before)
			if c.written != "" && b.Until(gifts[0].Next, c.written) != c.ends {
				t.Errorf("it ends at once: %t, want %t", !c.ends, c.ends)
			}
			show(c.shown)
			if kept := b.taken.Len() > 0; kept != c.kept {
				t.Errorf("the device is kept: %t, want %t", kept, c.kept)
			}
		})
	}
}

// Devices that are given back are free when the API says so, and not before.
func TestDevicesThatAreGivenBackAreNotYetFree(t *testing.T) {
	b := book(offer("n1", 1), claim("a"), claim("b"))
	give(t, b, user("a", "a"), "n1")
	stuck := b.Stuck(user("a", "a"))
	b.Promise(stuck[0].Next)
	if text := b.Ask(user("a", "a")).Problem(); text == "" {
		t.Error("the pod can have it meanwhile")
	}
	if b.taken.Len() != 1 || len(b.Stuck(user("a", "a"))) != 0 {
		t.Error("its device is free, or it is given back twice")
	}
	if !b.Forget(stuck[0].Next) || b.taken.Len() != 1 || b.Ask(user("a", "a")).Problem() != "" {
		t.Error("after a failure it is not as before")
	}
	b.Promise(stuck[0].Next)
	b.SetClaim(stuck[0].Next)
	if b.taken.Len() != 0 || len(b.promised) != 0 {
		t.Error("it is not free once the API says so")
	}
}
