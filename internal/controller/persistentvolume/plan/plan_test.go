package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/objects/volume"
)

func aClaim(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c1"}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.StorageClassName = ptr.To("local")
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	c.Status.Phase = corev1.ClaimPending
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func aVolume(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "v1"}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.StorageClassName = "local"
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	v.Status.Phase = corev1.VolumeAvailable
	for _, edit := range edits {
		edit(v)
	}
	return v
}

func naming(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name }
}

func boundTo(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = name, corev1.ClaimBound
		c.Annotations = map[string]string{volume.BindCompleted: "yes"}
		c.Status.AccessModes = c.Spec.AccessModes
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	}
}

func ofClass(name *string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = name }
}

func keptFor(uid types.UID) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: uid}
	}
}

func in(phase corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Status.Phase = phase }
}

func by(controller bool) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		if controller {
			v.Annotations = map[string]string{volume.BoundByController: "yes"}
		}
	}
}

// shown is a decision in short.
func shown(d Decision) string {
	var out []string
	for _, w := range d.Writes {
		switch {
		case w.Volume != nil && w.Status:
			out = append(out, "volume is "+string(w.Volume.Status.Phase))
		case w.Volume != nil:
			to := "nobody"
			if ref := w.Volume.Spec.ClaimRef; ref != nil {
				to = ref.Namespace + "/" + ref.Name + " " + string(ref.UID)
			}
			out = append(out, fmt.Sprintf("volume to %s (ours: %v)", to, w.Volume.Annotations[volume.BoundByController] != ""))
		case w.Status:
			out = append(out, fmt.Sprintf("claim is %s with %s", w.Claim.Status.Phase, w.Claim.Status.Capacity.Storage()))
		default:
			out = append(out, fmt.Sprintf("claim has %q of %q (done: %v, by: %q)", w.Claim.Spec.VolumeName, ptr.Deref(w.Claim.Spec.StorageClassName, "-"),
				w.Claim.Annotations[volume.BindCompleted] != "", w.Claim.Annotations[volume.Provisioner]))
		}
	}
	for _, e := range d.Events {
		out = append(out, e.Reason+": "+e.Message)
	}
	return strings.Join(out, "; ")
}

func TestClaim(t *testing.T) {
	class := func(name string, provisioner string, waits bool) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)}
		if waits {
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		}
		return c
	}
	nobody, waiting := class("local", volume.NoProvisioner, false), class("local", volume.NoProvisioner, true)
	made := class("local", "example.com/disks", false)
	list := func(v ...*corev1.PersistentVolume) []*corev1.PersistentVolume { return v }
	selected := func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{volume.SelectedNode: "n", volume.Provisioner: "example.com/disks"}
	}
	const binding = `volume to ns/c c1 (ours: true); volume is Bound; claim has "v" of "local" (done: true, by: ""); claim is Bound with 2Gi`
	const nothing = `FailedBinding: no persistent volumes available for this claim, and nobody makes volumes of the class "local"`
	for name, c := range map[string]struct {
		in   ClaimInput
		want string
	}{
		"a volume that is good": {ClaimInput{Claim: aClaim(), Class: nobody, Volumes: list(aVolume())}, binding},
		"none":                  {ClaimInput{Claim: aClaim(), Class: nobody}, nothing},
		"too small": {ClaimInput{Claim: aClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
		}), Class: nobody, Volumes: list(aVolume())}, nothing},
		"kept by hand":                 {ClaimInput{Claim: aClaim(), Class: waiting, Volumes: list(aVolume(keptFor("")))}, strings.Replace(binding, "ours: true", "ours: false", 1)},
		"bound by the scheduler":       {ClaimInput{Claim: aClaim(), Class: waiting, Volumes: list(aVolume(keptFor("c1"), by(true)))}, strings.TrimPrefix(binding, "volume to ns/c c1 (ours: true); ")},
		"kept for an earlier one":      {ClaimInput{Claim: aClaim(), Class: nobody, Volumes: list(aVolume(keptFor("old")))}, nothing},
		"the claim was not written":    {ClaimInput{Claim: aClaim(), Class: nobody, Volumes: list(aVolume(keptFor("c1"), in(corev1.VolumeBound)))}, `claim has "v" of "local" (done: true, by: ""); claim is Bound with 2Gi`},
		"waits for a pod":              {ClaimInput{Claim: aClaim(), Class: waiting, Volumes: list(aVolume())}, "WaitForFirstConsumer: waiting for first consumer to be created before binding"},
		"waits for its pod":            {ClaimInput{Claim: aClaim(), Class: waiting, Pods: []string{"p"}}, "WaitForPodScheduled: waiting for pod p to be scheduled"},
		"waits for its pods":           {ClaimInput{Claim: aClaim(), Class: waiting, Pods: []string{"q", "p"}}, "WaitForPodScheduled: waiting for pods p,q to be scheduled"},
		"no such class":                {ClaimInput{Claim: aClaim()}, `ProvisioningFailed: storageclass.storage.k8s.io "local" not found`},
		"no class":                     {ClaimInput{Claim: aClaim(ofClass(ptr.To("")))}, "FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"the default class":            {ClaimInput{Claim: aClaim(ofClass(nil)), Default: class("usual", "x", false)}, `claim has "" of "usual" (done: false, by: "")`},
		"no class, and a default":      {ClaimInput{Claim: aClaim(ofClass(ptr.To(""))), Default: class("usual", "x", false)}, "FailedBinding: no persistent volumes available for this claim and no storage class is set"},
		"somebody makes it":            {ClaimInput{Claim: aClaim(), Class: made}, `claim has "" of "local" (done: false, by: "example.com/disks"); ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/disks' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`},
		"somebody makes it on a node":  {ClaimInput{Claim: aClaim(selected), Class: class("local", "example.com/disks", true)}, `ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'example.com/disks' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`},
		"names what there is not":      {ClaimInput{Claim: aClaim(naming("v"))}, ""},
		"names a volume":               {ClaimInput{Claim: aClaim(naming("v")), Named: aVolume()}, binding},
		"names one of another class":   {ClaimInput{Claim: aClaim(naming("v"), ofClass(ptr.To("x"))), Named: aVolume()}, `VolumeMismatch: Cannot bind to requested volume "v": storageClassName does not match`},
		"names one that others have":   {ClaimInput{Claim: aClaim(naming("v")), Named: aVolume(keptFor("old"))}, `FailedBinding: volume "v" already bound to a different claim.`},
		"bound":                        {ClaimInput{Claim: aClaim(boundTo("v")), Named: aVolume(keptFor("c1"), in(corev1.VolumeBound))}, ""},
		"bound, the volume is not":     {ClaimInput{Claim: aClaim(boundTo("v")), Named: aVolume()}, "volume to ns/c c1 (ours: true); volume is Bound"},
		"bound, the volume is gone":    {ClaimInput{Claim: aClaim(boundTo("v"))}, "claim is Lost with 0; ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!"},
		"bound, and told so no longer": {ClaimInput{Claim: aClaim(boundTo("v"), naming(""))}, "claim is Lost with 0; ClaimLost: Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"},
		"bound to another's":           {ClaimInput{Claim: aClaim(boundTo("v")), Named: aVolume(keptFor("old"))}, "claim is Lost with 0; ClaimMisbound: Two claims are bound to the same volume, this one is bound incorrectly"},
		"lost": {ClaimInput{Claim: aClaim(boundTo("v"), func(c *corev1.PersistentVolumeClaim) {
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}
		})}, ""},
	} {
		if got := shown(Claim(c.in)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// What a driver says of a bound claim's size is not written over.
func TestABoundClaimKeepsItsSize(t *testing.T) {
	c := aClaim(boundTo("v"), func(c *corev1.PersistentVolumeClaim) {
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	})
	if got := shown(Claim(ClaimInput{Claim: c, Named: aVolume(keptFor("c1"), in(corev1.VolumeBound))})); got != "" {
		t.Error(got)
	}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	want := "ExternalExpanding: waiting for an external controller to expand this PVC; nothing here makes volumes grow"
	if got := shown(Claim(ClaimInput{Claim: c, Named: aVolume(keptFor("c1"), in(corev1.VolumeBound))})); got != want {
		t.Errorf("one that asks for more: %q, want %q", got, want)
	}
}

func TestVolume(t *testing.T) {
	policy := func(p corev1.PersistentVolumeReclaimPolicy, by string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = p
			if by != "" {
				v.Annotations = map[string]string{volume.ProvisionedBy: by}
			}
		}
	}
	const cannotDelete = "volume is Failed; VolumeFailedDelete: nobody made this volume for a claim, so nothing here deletes it: remove its content by hand, then the PersistentVolume"
	bound := in(corev1.VolumeBound)
	for name, c := range map[string]struct {
		volume *corev1.PersistentVolume
		claim  *corev1.PersistentVolumeClaim
		want   string
		look   bool
	}{
		"new":                     {aVolume(in(corev1.VolumePending)), nil, "volume is Available", false},
		"free":                    {aVolume(), nil, "", false},
		"kept":                    {aVolume(keptFor("")), nil, "", true},
		"bound":                   {aVolume(keptFor("c1"), bound), aClaim(boundTo("v")), "", false},
		"bound just now":          {aVolume(keptFor("c1")), aClaim(boundTo("v")), "volume is Bound", false},
		"the claim is to follow":  {aVolume(keptFor("c1"), bound), aClaim(), "", true},
		"a device":                {aVolume(keptFor("c1"), func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }), aClaim(), `VolumeMismatch: Cannot bind PersistentVolume to requested PersistentVolumeClaim "c" due to incompatible volumeMode.`, false},
		"claim elsewhere, ours":   {aVolume(keptFor("c1"), bound, by(true)), aClaim(boundTo("w")), "volume to nobody (ours: false); volume is Available", false},
		"claim elsewhere, theirs": {aVolume(keptFor("c1"), bound), aClaim(boundTo("w")), "volume to ns/c  (ours: false); volume is Available", false},
		"claim elsewhere, made":   {aVolume(keptFor("c1"), bound, policy(corev1.PersistentVolumeReclaimDelete, "x")), aClaim(boundTo("w")), "volume is Released", false},
		"claim gone":              {aVolume(keptFor("c1"), bound), nil, "volume is Released", false},
		"released":                {aVolume(keptFor("c1"), in(corev1.VolumeReleased)), nil, "", false},
		"to be deleted by others": {aVolume(keptFor("c1"), bound, policy(corev1.PersistentVolumeReclaimDelete, "x")), nil, "volume is Released", false},
		"others cannot delete it": {aVolume(keptFor("c1"), in(corev1.VolumeFailed), policy(corev1.PersistentVolumeReclaimDelete, "x")), nil, "", false},
		"to be deleted":           {aVolume(keptFor("c1"), bound, policy(corev1.PersistentVolumeReclaimDelete, "")), nil, cannotDelete, false},
		"recycled":                {aVolume(keptFor("c1"), bound, policy(corev1.PersistentVolumeReclaimRecycle, "")), nil, "volume is Failed; VolumeFailedRecycle: nothing here recycles volumes: remove its content by hand, then spec.claimRef of the PersistentVolume", false},
	} {
		got := Volume(c.volume, c.claim)
		look := got.Why == "the volume is kept for a claim" || got.Why == "the claim does not name the volume yet"
		if shown(got) != c.want || look != c.look {
			t.Errorf("%s: %s (it is the claim's turn: %v)\nwant %s", name, shown(got), look, c.want)
		}
	}
	failed := Volume(aVolume(keptFor("c1"), bound, policy(corev1.PersistentVolumeReclaimDelete, "")), nil).Writes[0].Volume
	if again := Volume(failed, nil); shown(again) != "" {
		t.Errorf("what is said already is said again: %s", shown(again))
	}
}

func TestProtection(t *testing.T) {
	leaving := &metav1.Time{}
	pod := func(node string, phase corev1.PodPhase, source corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "data", VolumeSource: source}}}}
		p.Status.Phase = phase
		return p
	}
	claims := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-data"}}
	own := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"runs": {pod("n", corev1.PodRunning, claims), true}, "has no node": {pod("", corev1.PodPending, claims), false}, "is over": {pod("n", corev1.PodSucceeded, claims), true},
		"runs with its own": {pod("n", corev1.PodRunning, own), true}, "is over, its own": {pod("n", corev1.PodFailed, own), false},
	} {
		if got := Uses(c.pod, "p-data"); got != c.want || Uses(c.pod, "other") {
			t.Errorf("a pod that %s: %v", name, got)
		}
	}
	with := []string{"a/b", volume.ClaimProtection}
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		used  bool
		want  string
	}{
		"new":           {aClaim(), false, "[kubernetes.io/pvc-protection] true"},
		"kept":          {aClaim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = with }), false, "[a/b kubernetes.io/pvc-protection] false"},
		"leaves, used":  {aClaim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers, c.DeletionTimestamp = with, leaving }), true, "[a/b kubernetes.io/pvc-protection] false"},
		"leaves":        {aClaim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers, c.DeletionTimestamp = with, leaving }), false, "[a/b] true"},
		"leaves, freed": {aClaim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers, c.DeletionTimestamp = with[:1], leaving }), true, "[a/b] false"},
	} {
		finalizers, changed := ProtectClaim(c.claim, c.used)
		if got := fmt.Sprint(finalizers, changed); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	v := aVolume(in(corev1.VolumeBound), func(v *corev1.PersistentVolume) {
		v.Finalizers, v.DeletionTimestamp = []string{volume.Protection}, leaving
	})
	if _, changed := ProtectVolume(v); changed {
		t.Error("a bound volume is let go")
	}
	v.Status.Phase = corev1.VolumeReleased
	if left, changed := ProtectVolume(v); !changed || len(left) != 0 {
		t.Errorf("a released volume keeps %v", left)
	}
}

func TestOwnClaims(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p1"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "empty"}, {Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: aClaim().Spec}}}}}
	own := OwnClaims(p)
	if len(own) != 1 || own[0].Namespace != "ns" || own[0].Name != "p-scratch" || own[0].Labels["a"] != "b" || !metav1.IsControlledBy(own[0], p) || *own[0].Spec.StorageClassName != "local" {
		t.Errorf("the claims are %+v", own)
	}
	p.DeletionTimestamp = &metav1.Time{}
	if own := OwnClaims(p); len(own) != 0 {
		t.Errorf("a pod that leaves gets %+v", own)
	}
}

// world is what the API has; the decisions of both sides are carried out in it, one write at a time, in any order and with crashes between.
type world struct {
	volumes map[string]*corev1.PersistentVolume
	claims  map[string]*corev1.PersistentVolumeClaim
	version int
}

// write is refused, as the API does, if the object is no longer of the version that was decided about.
func (w *world) write(step Write, versions map[types.UID]string) bool {
	w.version++
	next := fmt.Sprint(w.version)
	if step.Volume != nil {
		now := w.volumes[step.Volume.Name]
		if now == nil || now.ResourceVersion != versions[now.UID] {
			return false
		}
		v := step.Volume.DeepCopy()
		if step.Status {
			v.Spec, v.ObjectMeta = now.Spec, now.ObjectMeta
		} else {
			v.Status = now.Status
		}
		v.ResourceVersion = next
		w.volumes[v.Name], versions[v.UID] = v, next
		return true
	}
	now := w.claims[step.Claim.Name]
	if now == nil || now.UID != step.Claim.UID || now.ResourceVersion != versions[now.UID] {
		return false
	}
	c := step.Claim.DeepCopy()
	if step.Status {
		c.Spec, c.ObjectMeta = now.Spec, now.ObjectMeta
	} else {
		c.Status = now.Status
	}
	c.ResourceVersion = next
	w.claims[c.Name], versions[c.UID] = c, next
	return true
}

// decide is one look at one object, as a cache shows it that may be behind by what seen is.
func (w *world) decide(name string, isClaim bool, seen world) (Decision, map[types.UID]string) {
	versions := map[types.UID]string{}
	for _, v := range seen.volumes {
		versions[v.UID] = v.ResourceVersion
	}
	for _, c := range seen.claims {
		versions[c.UID] = c.ResourceVersion
	}
	if isClaim {
		c := seen.claims[name]
		if c == nil {
			return Decision{}, versions
		}
		in := ClaimInput{Claim: c, Class: &storagev1.StorageClass{Provisioner: volume.NoProvisioner}, Named: seen.volumes[c.Spec.VolumeName]}
		if c.Spec.VolumeName != "" && volume.Bound(c) && (in.Named == nil || Misbound(in.Named, c)) {
			in.Named = w.volumes[c.Spec.VolumeName] // who says that a volume is lost asks the API
		}
		for _, v := range seen.volumes {
			in.Volumes = append(in.Volumes, v)
		}
		return Claim(in), versions
	}
	v := seen.volumes[name]
	if v == nil {
		return Decision{}, versions
	}
	var c *corev1.PersistentVolumeClaim
	if ref := v.Spec.ClaimRef; ref != nil {
		if c = seen.claims[ref.Name]; c == nil || c.UID != ref.UID {
			c = w.claims[ref.Name] // who says that a claim is gone asks the API
		}
		if c != nil && c.UID != ref.UID {
			c = nil
		}
	}
	return Volume(v, c), versions
}

func (w *world) snapshot() world {
	s := world{volumes: map[string]*corev1.PersistentVolume{}, claims: map[string]*corev1.PersistentVolumeClaim{}}
	for k, v := range w.volumes {
		s.volumes[k] = v
	}
	for k, c := range w.claims {
		s.claims[k] = c
	}
	return s
}

// bound says which claim has which volume, and fails if two have one.
func (w *world) bound(t *rapid.T) map[string]string {
	of, users := map[string]string{}, map[string]string{}
	for name, c := range w.claims {
		if c.Status.Phase != corev1.ClaimBound {
			continue
		}
		v := w.volumes[c.Spec.VolumeName]
		if v == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID {
			t.Fatalf("claim %s is bound to volume %q, which is not its own", name, c.Spec.VolumeName)
		}
		if other, twice := users[v.Name]; twice {
			t.Fatalf("volume %s is bound to %s and %s", v.Name, other, name)
		}
		of[name], users[v.Name] = v.Name, name
	}
	return of
}

// TestAnyOrder plays random looks by stale caches, cut off at any write. No volume is ever bound twice, a binding stays, and once all is
// quiet no claim is without a volume that would be good for it.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{volumes: map[string]*corev1.PersistentVolume{}, claims: map[string]*corev1.PersistentVolumeClaim{}}
		var names [2][]string
		for i := range rapid.IntRange(1, 4).Draw(t, "volumes") {
			name := fmt.Sprint("v", i)
			w.volumes[name] = aVolume(in(corev1.VolumePending), func(v *corev1.PersistentVolume) {
				v.Name, v.UID = name, types.UID(name)
				v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse(fmt.Sprintf("%dGi", rapid.IntRange(1, 3).Draw(t, "size")))
				if rapid.IntRange(0, 4).Draw(t, "kept") == 0 {
					v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: fmt.Sprint("c", rapid.IntRange(0, 3).Draw(t, "for"))}
				}
			})
			names[0] = append(names[0], name)
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "claims") {
			name := fmt.Sprint("c", i)
			w.claims[name] = aClaim(func(c *corev1.PersistentVolumeClaim) {
				c.Name, c.UID = name, types.UID(name)
				c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(fmt.Sprintf("%dGi", rapid.IntRange(1, 3).Draw(t, "wants")))
				if rapid.IntRange(0, 4).Draw(t, "names") == 0 {
					c.Spec.VolumeName = fmt.Sprint("v", rapid.IntRange(0, 3).Draw(t, "named"))
				}
			})
			names[1] = append(names[1], name)
		}
		seen, before := w.snapshot(), map[string]string{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			kind := rapid.IntRange(0, 1).Draw(t, "kind")
			d, versions := w.decide(rapid.SampledFrom(names[kind]).Draw(t, "who"), kind == 1, seen)
			for _, step := range d.Writes[:rapid.IntRange(0, len(d.Writes)).Draw(t, "until")] {
				if !w.write(step, versions) {
					break
				}
			}
			now := w.snapshot() // each kind has a cache of its own
			if rapid.Bool().Draw(t, "fresh volumes") {
				seen.volumes = now.volumes
			}
			if rapid.Bool().Draw(t, "fresh claims") {
				seen.claims = now.claims
			}
			for name, v := range before {
				if now := w.bound(t)[name]; now != v {
					t.Fatalf("claim %s had volume %s and has %q", name, v, now)
				}
			}
			before = w.bound(t)
		}
		w.settle(t, names)
	})
}

// settle looks at everything until nobody writes any more.
func (w *world) settle(t *rapid.T, names [2][]string) {
	for round := 0; ; round++ {
		if round > 50 {
			t.Fatal("it never becomes quiet")
		}
		wrote := false
		for kind, list := range names {
			for _, name := range list {
				d, versions := w.decide(name, kind == 1, w.snapshot())
				for _, step := range d.Writes {
					wrote = true
					if !w.write(step, versions) {
						t.Fatalf("nobody else writes, and the write about %s is refused", name)
					}
				}
			}
		}
		if !wrote {
			break
		}
	}
	bound := w.bound(t)
	for _, c := range w.claims {
		if _, has := bound[c.Name]; has || c.Spec.VolumeName != "" || c.Status.Phase == corev1.ClaimLost {
			continue
		}
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range w.volumes {
				if !yield(name) {
					return
				}
			}
		}) {
			if volume.Want(c).Takes(w.volumes[name]) {
				t.Fatalf("claim %s waits, and volume %s would be good for it", c.Name, name)
			}
		}
	}
}
