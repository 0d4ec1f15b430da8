package podspec

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Whoever may create pods must not keep a server busy with a long list. These lists are longer than a request can hold:
// looking through the list for each of its entries would take so many steps that go test ends it, and shows where it
// was.
func TestLongListsAreLookedAtOnce(t *testing.T) {
	const n = 1_000_000
	at, names := field.NewPath("list"), sets.New[string]()
	entries, wanted := make([]corev1.PodResourceClaim,
		n), &corev1.ResourceRequirements{Claims: make([]corev1.ResourceClaim, n)}
	for i := range n {
		name := fmt.Sprint("c", i)
		names.Insert(name)
		entries[i], wanted.Claims[i] = corev1.PodResourceClaim{Name: name,
			ResourceClaimName: new("c")}, corev1.ResourceClaim{Name: name}
	}
	for what, look := range map[string]func() int{
		"claims of a pod":       func() int { return len(validateResourceClaims(entries, at)) },
		"claims of a container": func() int { return len(validateRequirements(wanted, names, at)) },
	} {
		if found := look(); found > 0 {
			t.Errorf("%s: %d are wrong", what, found)
		}
	}
	for list, one := range map[string]string{
		fmt.Sprint(validateResourceClaims([]corev1.PodResourceClaim{entries[3], entries[3]},
			at)): `list[1].name: Duplicate value: "c3"`,
		fmt.Sprint(validateRequirements(&corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "c3"},
			{Name: "c3"}}}, names, at)): `list.claims[1]: Duplicate value: "c3"`,
	} {
		if list != "["+one+"]" {
			t.Errorf("%s, want %s", list, one)
		}
	}
}

// A container's mounts are not looked for in the list of its devices.
func TestMountsAreLookedUpAmongDevices(t *testing.T) {
	const n = 300_000
	c := &corev1.Container{VolumeMounts: make([]corev1.VolumeMount, n), VolumeDevices: make([]corev1.VolumeDevice, n)}
	for i := range n {
		c.VolumeMounts[i] = corev1.VolumeMount{Name: "v", MountPath: fmt.Sprint("/m", i)}
		c.VolumeDevices[i] = corev1.VolumeDevice{Name: fmt.Sprint("d", i), DevicePath: fmt.Sprint("/d", i)}
	}
	p := containerChecks{volumes: map[string]corev1.VolumeSource{"v": {}}}
	if errs := p.mounts(c, field.NewPath("m")); len(errs) > 0 {
		t.Errorf("%d are wrong: %v", len(errs), errs[0])
	}
	c.VolumeMounts, c.VolumeDevices[0] = c.VolumeMounts[:1], corev1.VolumeDevice{Name: "v", DevicePath: "/m0"}
	want := `[m[0].name: Invalid value: "v": must not already exist in volumeDevices ` +
		`m[0].mountPath: Invalid value: "/m0": must not already exist as a path in volumeDevices]`
	if got := fmt.Sprint(p.mounts(c, field.NewPath("m"))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
