package reserve

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

// What all pods have together is what the machine has less what is reserved; of what nothing is reserved the machine
// is the bound.
func TestRoomForAllPods(t *testing.T) {
	amounts := func(list ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(list); i += 2 {
			out[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
		}
		return out
	}
	machine := amounts("cpu", "4", "memory", "8Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "64Mi",
		"hugepages-1Gi", "0")
	pages := amounts("hugepages-2Mi", "64Mi", "hugepages-1Gi", "0")
	for name, c := range map[string]struct {
		reserved corev1.ResourceList
		want     cgroups.Room
		wrong    string
	}{
		"nothing reserved": {nil, cgroups.Room{CPU: 4000, HugePages: pages}, ""},
		"something of each": {amounts("cpu", "500m", "memory", "1Gi", "pid", "2k", "ephemeral-storage", "1Gi"),
			cgroups.Room{CPU: 3500, Memory: 7 << 30, PIDs: 30768, HugePages: pages}, ""},
		"all memory": {amounts("memory", "8Gi"), cgroups.Room{},
			"8589934592 bytes of memory are reserved, and the node has 8589934592: lower --system-reserved"},
		"more processors": {amounts("cpu", "5"), cgroups.Room{},
			"5000 thousandths of a processor are reserved, and the node has 4000"},
		"all process IDs": {amounts("pid", "32768"), cgroups.Room{}, "32768 processes and threads are reserved"},
	} {
		got, err := roomFor(machine, 32768, c.reserved)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) ||
			!equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestChooseDriver(t *testing.T) {
	for _, c := range []struct {
		asked, told cgroups.Driver
		want, wrong string
	}{
		{"", "", "cgroupfs", ""}, {"", "systemd", "systemd", ""}, {"", "cgroupfs", "cgroupfs", ""},
		{"systemd", "systemd", "systemd", ""}, {"systemd", "", "systemd", ""},
		{"systemd", "cgroupfs", "", "set SystemdCgroup = true in the runtime's configuration"},
		{"cgroupfs", "systemd", "", "set SystemdCgroup = false in the runtime's configuration"},
	} {
		got, err := ChooseDriver(c.asked, c.told)
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("asked for %q, told %q: %q, %v", c.asked, c.told, got, err)
		}
	}
}
