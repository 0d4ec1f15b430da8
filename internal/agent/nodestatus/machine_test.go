package nodestatus

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// tree writes files below a new root.
func tree(t *testing.T, contents map[string]string) string {
	t.Helper()
	root := t.TempDir()
	base := map[string]string{
		"proc/meminfo":                   "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\nHugePages_Total:       0\n",
		"proc/loadavg":                   "0.1 0.2 0.3 2/500 12345\n",
		"proc/sys/kernel/pid_max":        "4194304\n",
		"proc/sys/kernel/threads-max":    "100000\n",
		"proc/sys/kernel/random/boot_id": "b-o-o-t\n",
		"etc/machine-id":                 "m-1\n",
		"etc/os-release":                 "NAME=X\nPRETTY_NAME=\"Some Linux 12\"\n",
		"sys/kernel/mm/hugepages/odd/x":  "",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
	}
	for name, text := range contents {
		base[name] = text
	}
	for name, text := range base {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLook(t *testing.T) {
	m, err := look(Config{Root: tree(t, nil), DataDir: t.TempDir(), MaxPods: 7}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.memory != (usage{16000000 << 10, 8000000 << 10}) || m.processes != (usage{100000, 99500}) {
		t.Errorf("memory %+v, processes %+v", m.memory, m.processes)
	}
	if pages := m.capacity["hugepages-2Mi"]; pages.String() != "6Mi" {
		t.Errorf("huge pages %s", pages.String())
	}
	if pods := m.capacity[corev1.ResourcePods]; pods.Value() != 7 {
		t.Errorf("pods %s", pods.String())
	}
	if cpu := m.capacity[corev1.ResourceCPU]; cpu.Sign() <= 0 {
		t.Errorf("cpu %s", cpu.String())
	}
	if i := m.info; i.MachineID != "m-1" || i.SystemUUID != "m-1" || i.BootID != "b-o-o-t" || i.OSImage != "Some Linux 12" || i.KernelVersion == "" || i.Architecture == "" {
		t.Errorf("info %+v", i)
	}
	if m.disk.total <= 0 || m.disk.free > m.disk.total {
		t.Errorf("disk %+v", m.disk)
	}
	if _, err := look(Config{Root: "/", DataDir: t.TempDir()}, t.TempDir()); err != nil {
		t.Errorf("this machine: %v", err)
	}
}

func TestLookErrors(t *testing.T) {
	for name, text := range map[string]string{"proc/meminfo": "MemFree: 1 kB\n", "proc/loadavg": "0.1\n"} {
		if _, err := look(Config{Root: tree(t, map[string]string{name: text}), DataDir: t.TempDir()}, t.TempDir()); err == nil {
			t.Errorf("%s with %q is no error", name, text)
		}
	}
	if _, err := look(Config{Root: tree(t, nil), DataDir: "/does/not/exist"}, t.TempDir()); err == nil {
		t.Error("a missing data directory is no error")
	}
}

func TestCgroupLimits(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  usage
		cpu   int64 // thousandths, 0 for all of the machine's
	}{
		{"version 2", map[string]string{
			"sys/fs/cgroup/node/memory.max": "1000000\n", "sys/fs/cgroup/node/memory.current": "700000\n",
			"sys/fs/cgroup/node/memory.stat": "anon 1\ninactive_file 100000\n", "sys/fs/cgroup/node/cpu.max": "50000 100000\n",
		}, usage{1000000, 400000}, 500},
		{"version 2 without limits", map[string]string{
			"sys/fs/cgroup/node/memory.max": "max\n", "sys/fs/cgroup/node/memory.current": "700000\n", "sys/fs/cgroup/node/cpu.max": "max 100000\n",
		}, usage{16000000 << 10, 8000000 << 10}, 0},
		{"version 1", map[string]string{
			"sys/fs/cgroup/memory/node/memory.limit_in_bytes": "1000000\n", "sys/fs/cgroup/memory/node/memory.usage_in_bytes": "2000000\n",
			"sys/fs/cgroup/cpu/node/cpu.cfs_quota_us": "25000\n", "sys/fs/cgroup/cpu/node/cpu.cfs_period_us": "100000\n",
		}, usage{1000000, 0}, 250},
		{"version 1 without limits", map[string]string{
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
		}, usage{16000000 << 10, 8000000 << 10}, 0},
		{"the root is limited", map[string]string{"sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/node/memory.max": "max\n"}, usage{5000, 5000}, 0},
	}
	for _, test := range tests {
		root := tree(t, test.files)
		got, err := memory(root, "/node")
		if err != nil || got != test.want {
			t.Errorf("%s: memory %+v, %v; want %+v", test.name, got, err, test.want)
		}
		cpu, all := cpus(root, "/node"), cpus("/does/not/exist", "")
		if want := test.cpu; want == 0 && cpu.Cmp(all) != 0 || want != 0 && cpu.MilliValue() != want {
			t.Errorf("%s: cpu %s, want %d m", test.name, cpu.String(), want)
		}
	}
}

func TestBusyTicks(t *testing.T) {
	const stat = "cpu  100 20 30 5000 600 7 8 9 50 60\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
	if got, err := busyTicks(stat); err != nil || got != 100+20+30+7+8+9 {
		t.Errorf("got %d, %v; want all but idle, waiting and guests, who count as users", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8", "cpu a 2 3 4 5 6 7 8"} {
		if _, err := busyTicks(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
	r, err := New(Config{NodeName: "n", DataDir: t.TempDir(), Client: fake.NewClientset(), Runtime: func(context.Context) (Runtime, error) { return Runtime{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if cpu, memory, err := r.Use(); err != nil || cpu <= 0 || memory <= 0 {
		t.Errorf("this machine: %v, %d bytes, %v", cpu, memory, err)
	}
}
