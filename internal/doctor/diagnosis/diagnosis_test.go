package diagnosis

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// found compares findings with texts "SEVERITY check subject: message | remedy"; an
// asterisk stands for anything.
func found(t *testing.T, got []Finding, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d findings, want %d:\n%s", len(got), len(want), lines(got))
		return
	}
	for i, f := range got {
		text := fmt.Sprintf("%s %s %s: %s | %s", f.Severity, f.Check, f.Subject, f.Message, f.Remedy)
		parts := strings.Split(want[i], "*")
		rest, ok := strings.CutPrefix(text, parts[0])
		for _, part := range parts[1:] {
			before, after, has := strings.Cut(rest, part)
			_, rest, ok = before, after, ok && (has || part == "")
		}
		if !ok {
			t.Errorf("finding %d is\n%s\nwant\n%s", i+1, text, want[i])
		}
	}
}

func lines(all []Finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

func well() Machine {
	return Machine{
		Now: now, DataDir: "/data", Server: true, Node: true,
		Program:      Program{Here: "v2", Data: 2, WroteVersion: "v2", WroteData: 2},
		Disks:        []Disk{{Path: "/data", For: "the data", Bytes: 100, BytesFree: 50, Files: 100, FilesFree: 90}},
		Certificates: []Certificate{{File: "api.crt", Until: now.Add(30 * 24 * time.Hour)}, {File: "ca.crt", Until: now.Add(1000 * 24 * time.Hour), Authority: true}},
		Modules:      []Module{{Name: "overlay", There: true}},
		Ports:        []Port{{Number: 6443, For: "the API", Flag: "--listen"}},
		Cgroups:      Cgroups{Version: 2, Controllers: []string{"cpu", "cpuset", "memory", "pids"}},
		Tools:        []Tool{{Name: "runc", There: true}},
	}
}

func TestMachines(t *testing.T) {
	for name, c := range map[string]struct {
		ill  func(*Machine)
		want []string
	}{
		"well": {func(*Machine) {}, nil},
		"newer data": {func(m *Machine) { m.Program.WroteVersion, m.Program.WroteData = "v3", 3 },
			[]string{"Problem versions /data: everynode v3 wrote the data, in a form that this one, v2, does not know*| everynode version"}},
		"data that nobody signed": {func(m *Machine) { m.Program.WroteData, m.Program.WroteVersion = 0, "" }, nil},
		"an unreadable version":   {func(m *Machine) { m.Program.Problem = "bad JSON" }, []string{"Problem versions /data: *bad JSON | cat /data/version.json"}},
		"a disk that fills":       {func(m *Machine) { m.Disks[0].BytesFree = 14 }, []string{"Warning disk /data: 14 % of the room for the data is left | du -xhd1 /data | sort -h"}},
		"a full disk":             {func(m *Machine) { m.Disks[0].BytesFree = 4 }, []string{"Problem disk /data: 4 % of the room for the data is left; without*"}},
		"no file entries":         {func(m *Machine) { m.Disks[0].FilesFree = 0 }, []string{"Problem disk /data: 0 % of the file entries*"}},
		"no limit of files":       {func(m *Machine) { m.Disks[0].Files, m.Disks[0].FilesFree = 0, 0 }, nil},
		"a broken disk":           {func(m *Machine) { m.Disks[0].ReadOnly = true }, []string{"Problem disk /data: *only be read*| mount -o remount,rw /data"}},
		"a certificate that ended": {func(m *Machine) { m.Certificates[0].Until = now.Add(-time.Hour) },
			[]string{"Problem certificates api.crt: the certificate expired 60 min ago | everynode certificates renew --data-dir /data"}},
		"a certificate that ends": {func(m *Machine) { m.Certificates[0].Until = now.Add(3 * 24 * time.Hour) }, []string{"Problem certificates api.crt: the certificate expires in 3 days*renew*"}},
		"an authority that ends": {func(m *Machine) { m.Certificates[1].Until = now.Add(30 * 24 * time.Hour) },
			[]string{"Warning certificates ca.crt: the authority expires in 30 days*| everynode certificates rotate-ca --data-dir /data"}},
		"unreadable certificates": {func(m *Machine) { m.CertificatesProblem = "denied" }, []string{"Problem certificates /data: *denied*"}},
		"a module to load":        {func(m *Machine) { m.Modules[0] = Module{Name: "vxlan", Loadable: true} }, []string{"Warning kernel vxlan: *| modprobe vxlan*"}},
		"a module that is not there": {func(m *Machine) { m.Modules[0] = Module{Name: "vxlan"} },
			[]string{"Problem kernel vxlan: this kernel*does not have the module vxlan*| apt-get install*"}},
		"no cgroups":        {func(m *Machine) { m.Cgroups = Cgroups{} }, []string{"Problem cgroups /sys/fs/cgroup: *| mount -t cgroup2 none /sys/fs/cgroup"}},
		"no memory limits":  {func(m *Machine) { m.Cgroups.Controllers = []string{"cpu", "pids"} }, []string{"Problem cgroups *cannot limit memory*cgroup_enable=memory*"}},
		"a missing program": {func(m *Machine) { m.Tools[0] = Tool{Name: "runc", Package: "runc", For: "x"} }, []string{"Problem programs runc: runc is missing; x | apt-get install runc"}},
		"no node": {func(m *Machine) {
			m.Tools = []Tool{{Name: "containerd"}, {Name: "runc"}}
			m.Modules[0] = Module{Name: "vxlan"}
		}, []string{"Warning programs this machine: it has a control plane and no containerd*| apt-get install containerd*"}},
		"a node that lost its runtime": {func(m *Machine) { m.Tools, m.Joined = []Tool{{Name: "containerd", For: "x"}}, true },
			[]string{"Problem programs containerd: containerd is missing; x*"}},
		"a node to be": {func(m *Machine) { m.Tools, m.Server = []Tool{{Name: "containerd", For: "x"}}, false },
			[]string{"Problem programs containerd: containerd is missing; x*"}},
		"nothing runs here": {func(m *Machine) {
			m.Node = false
			m.Tools[0].There = false
			m.Cgroups = Cgroups{}
			m.Modules[0].There = false
		}, nil},
		"a taken port":       {func(m *Machine) { m.Ports[0].Taken, m.Ports[0].By, m.Ports[0].PID = true, "nginx", 7 }, []string{"Warning ports port 6443: nginx (process 7) listens*--listen | ss -ltnp 'sport = :6443'"}},
		"a port of somebody": {func(m *Machine) { m.Ports[0].Taken = true }, []string{"Warning ports port 6443: another program listens*"}},
		"its own port":       {func(m *Machine) { m.Ports[0].Taken, m.Runs = true, true }, nil},
		"problems first": {func(m *Machine) { m.Disks[0].BytesFree = 14; m.Tools[0].There = false },
			[]string{"Problem programs*", "Warning disk*"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := well()
			c.ill(&m)
			found(t, OfMachine(m), c.want...)
		})
	}
}

func aNode(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.KubeletVersion = "v1.37.2"
	n.Status.Conditions = conditions
	if conditions == nil {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	return n
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, message string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: kind, Status: status, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
}

func wellCluster() Cluster {
	return Cluster{
		Now: now, ServerNow: now, Server: "https://api:6443", Version: "v1.37.2", Program: "everynode", Kubectl: "kubectl",
		Nodes:      []*corev1.Node{aNode("a"), aNode("b")},
		Leases:     map[string]*coordinationv1.Lease{"a": {Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now}}}},
		DaemonSets: []*appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", Generation: 2}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2}}},
		Rollouts:   []*v1alpha1.DaemonSetRollout{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}, Status: v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, Message: "because"}}},
		Webhooks:   []Webhook{{Resource: "validatingwebhookconfigurations", Configuration: "w", Name: "w.example.com", Service: "n/s", Ready: 1, Demanding: true, AuthorityEnds: now.Add(1000 * time.Hour)}},
		Members:    []Member{{Name: "m1"}, {Name: "m2"}, {Name: "m3"}},
	}
}

func TestClusters(t *testing.T) {
	phase := func(p v1alpha1.Phase) func(*Cluster) {
		return func(c *Cluster) { c.Rollouts[0].Status.Phase = p }
	}
	for name, c := range map[string]struct {
		ill  func(*Cluster)
		want []string
	}{
		"well":         {func(*Cluster) {}, nil},
		"away":         {func(c *Cluster) { c.Unreachable, c.Nodes = "connection refused", nil }, []string{"Problem api https://api:6443: the API does not answer: connection refused*"}},
		"not ready":    {func(c *Cluster) { c.Unready = []string{"etcd failed"} }, []string{"Problem api *etcd failed | kubectl get --raw '/readyz?verbose'"}},
		"hidden":       {func(c *Cluster) { c.Hidden = []string{"leases"} }, []string{"Warning api leases: *| kubectl auth whoami"}},
		"an extension": {func(c *Cluster) { c.Extensions = []Extension{{"v1.x", "no route"}} }, []string{"Problem api apiservice/v1.x: *no route | kubectl describe apiservice v1.x"}},
		"a server silent": {func(c *Cluster) { c.Members[1].Problem = "no answer" },
			[]string{"Problem members server/m2: *no answer | everynode members remove m2*"}},
		"no majority": {func(c *Cluster) { c.Members[1].Problem, c.Members[2].Problem = "x", "x" },
			[]string{"Problem members server/m2*", "Problem members server/m3*", "Problem members servers: 2 of 3 servers do not answer, and 2 are needed*"}},
		"two servers":     {func(c *Cluster) { c.Members = c.Members[:2] }, []string{"Warning members servers: 2 servers survive no more losses than 1*"}},
		"one server":      {func(c *Cluster) { c.Members = c.Members[:1]; c.Members[0].Problem = "x" }, nil},
		"a server behind": {func(c *Cluster) { c.Members[0].Behind = 10001 }, []string{"Warning members server/m1: its database is 10001 changes behind | everynode members"}},
		"a database corrupt": {func(c *Cluster) { c.Members[2].Differs = "Corrupt" },
			[]string{"Problem members server/m3: its database differs from those of other servers (Corrupt)*"}},
		"a clock off":     {func(c *Cluster) { c.ServerNow = now.Add(-5 * time.Second) }, []string{"Warning clock this machine: *differ by 5 s*| timedatectl set-ntp true"}},
		"a clock wild":    {func(c *Cluster) { c.Now = now.Add(-time.Hour); c.Webhooks, c.Leases = nil, nil }, []string{"Problem clock this machine: *60 min*"}},
		"an unknown time": {func(c *Cluster) { c.ServerNow = time.Time{} }, nil},
		"a node's clock": {func(c *Cluster) { c.Leases["a"].Spec.RenewTime.Time = now.Add(time.Minute) },
			[]string{"Problem clock nodes: the clock of 1 node is ahead*: a*"}},
		"a node's clock behind": {func(c *Cluster) { c.Leases["a"].Spec.RenewTime.Time = now.Add(-3 * time.Minute) },
			[]string{"Problem clock nodes: the clock of 1 node is behind*: a; *| timedatectl*"}},
		"a node that is just late": {func(c *Cluster) { c.Leases["a"].Spec.RenewTime.Time = now.Add(-time.Minute) }, nil},
		"a node that is silent": {func(c *Cluster) {
			c.Leases["a"].Spec.RenewTime.Time = now.Add(-time.Hour)
			c.Nodes[0] = aNode("a", condition(corev1.NodeReady, corev1.ConditionUnknown, ""))
		}, []string{"Problem nodes node/a: 1 node is silent*"}},
		"an old node":   {func(c *Cluster) { c.Nodes[1].Status.NodeInfo.KubeletVersion = "v1.36.1" }, []string{"Warning versions nodes: 1 node runs v1.36.1, and the API server v1.37.2: b*"}},
		"a patch apart": {func(c *Cluster) { c.Nodes[1].Status.NodeInfo.KubeletVersion = "v1.37.0" }, nil},
		"no nodes":      {func(c *Cluster) { c.Nodes = nil }, []string{"Warning nodes nodes: there are no nodes*| everynode token create"}},
		"silent nodes": {func(c *Cluster) {
			c.Nodes = nil
			for i := range 5 {
				c.Nodes = append(c.Nodes, aNode(fmt.Sprint("n", i), condition(corev1.NodeReady, corev1.ConditionUnknown, "")))
			}
		}, []string{"Problem nodes nodes: 5 nodes are silent, the first for 60 min: n0, n1, n2 and 2 more | systemctl status everynode-agent    # on n0; everynode why n0"}},
		"a node that is not ready": {func(c *Cluster) {
			c.Nodes[0] = aNode("a", condition(corev1.NodeReady, corev1.ConditionFalse, "no network"))
		},
			[]string{"Problem nodes node/a: 1 node says that it is not ready: no network, the first for 60 min: a*"}},
		"nodes that say many things": {func(c *Cluster) {
			c.Nodes = nil
			for i := range 1000 {
				c.Nodes = append(c.Nodes, aNode(fmt.Sprintf("n%03d", i), condition(corev1.NodeReady, corev1.ConditionFalse, fmt.Sprint("no network at 10.0.0.", max(i, 2)))))
			}
		}, append([]string{"Problem nodes nodes: 3 nodes say that they are not ready: no network at 10.0.0.2, the first for 60 min: n000, n001, n002*"},
			append(slices.Repeat([]string{"Problem nodes node/n*"}, 8), "Problem nodes nodes: 989 nodes say that they are not ready: other things*and 986 more*")...)},
		"a node short of disk": {func(c *Cluster) {
			c.Nodes[0] = aNode("a", condition(corev1.NodeReady, corev1.ConditionTrue, ""), condition(corev1.NodeDiskPressure, corev1.ConditionTrue, ""))
		}, []string{"Warning nodes node/a: 1 node is short of disk*| kubectl describe node a"}},
		"a cordoned node": {func(c *Cluster) { c.Nodes[0].Spec.Unschedulable = true }, []string{"Warning nodes node/a: *| kubectl uncordon a"}},
		"no controller": {func(c *Cluster) { c.DaemonSets[0].Generation = 3 },
			[]string{"Problem daemons daemonset controller: *n/d*| kubectl -n kube-system get leases"}},
		"a change just now": {func(c *Cluster) {
			c.DaemonSets[0].Generation = 3
			c.DaemonSets[0].ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: now.Add(-time.Second)}}}
		}, nil},
		"unavailable daemons":  {func(c *Cluster) { c.DaemonSets[0].Status.NumberUnavailable = 1 }, []string{"Warning daemons daemonset/n/d: 1 of 2 nodes have no available daemon | everynode why daemonset/d -n n"}},
		"misscheduled daemons": {func(c *Cluster) { c.DaemonSets[0].Status.NumberMisscheduled = 1 }, []string{"Warning daemons daemonset/n/d: 1 node has a daemon and should not*"}},
		"a failed change":      {phase(v1alpha1.PhaseHalted), []string{"Problem rollouts daemonset/n/d: its change has failed (Halted): because | everynode why daemonset/d -n n --verdict FailedRevision"}},
		"a change undone":      {phase(v1alpha1.PhaseRolledBack), []string{"Problem rollouts*RolledBack*"}},
		"a change to approve":  {phase(v1alpha1.PhaseWaitingForApproval), []string{"Warning rollouts daemonset/n/d: *| everynode rollout approve daemonset/d -n n"}},
		"a canary that shows nothing": {func(c *Cluster) {
			phase(v1alpha1.PhaseWaitingForApproval)(c)
			c.Rollouts[0].Status.Step = "canary"
			c.Rollouts[0].Status.Steps = []v1alpha1.StepStatus{{Name: "before", Nodes: 1, Done: 1}, {Name: "canary", Nodes: 1}}
		}, []string{"Warning rollouts daemonset/n/d: *| everynode why daemonset/d -n n"}},
		"a canary that works": {func(c *Cluster) {
			phase(v1alpha1.PhaseWaitingForApproval)(c)
			c.Rollouts[0].Status.Step = "canary"
			c.Rollouts[0].Status.Steps = []v1alpha1.StepStatus{{Name: "canary", Nodes: 1, Done: 1}, {Name: "rest", Nodes: 1}}
		}, []string{"Warning rollouts daemonset/n/d: *| everynode rollout approve daemonset/d -n n"}},
		"a change that stands still": {phase(v1alpha1.PhasePaused), []string{"Warning rollouts*| everynode rollout status daemonset/d -n n"}},
		"a paused change": {func(c *Cluster) { phase(v1alpha1.PhasePaused)(c); c.Rollouts[0].Spec.Paused = true },
			[]string{"Warning rollouts*| everynode rollout resume daemonset/d -n n"}},
		"a change that soaks":  {phase(v1alpha1.PhaseSoaking), nil},
		"a change under way":   {func(c *Cluster) { stuck(c); c.Rollouts[0].Status.Counts = map[string]int32{"Changing": 1} }, nil},
		"a change that is new": {func(c *Cluster) { stuck(c); c.Rollouts[0].Status.StepStarted.Time = now.Add(-time.Minute) }, nil},
		"a change that stands": {stuck, []string{"Warning rollouts daemonset/n/d: its change is in the step s for 60 min, and no node is being changed: because | everynode rollout status daemonset/d -n n"}},
		"a webhook that was away": {func(c *Cluster) { c.Webhooks[0].Unanswered = 4 },
			[]string{"Warning webhooks validatingwebhookconfigurations/w: the webhook w.example.com could not be asked 4 times since the API server started; what it is asked about is refused then*"}},
		"a webhook without pod": {func(c *Cluster) { c.Webhooks[0].Ready = 0 }, []string{"Problem webhooks validatingwebhookconfigurations/w: the webhook w.example.com has nobody to answer*refused | kubectl -n n get pods,endpointslices*=s"}},
		"a webhook left behind": {func(c *Cluster) { c.Webhooks[0].Missing, c.Webhooks[0].Ready = true, 0 }, []string{"Problem webhooks*does not exist*| kubectl delete validatingwebhookconfigurations w*"}},
		"a webhook ignored":     {func(c *Cluster) { c.Webhooks[0].Ready, c.Webhooks[0].Demanding = 0, false }, []string{"Warning webhooks*it is left out*"}},
		"a webhook at a URL":    {func(c *Cluster) { c.Webhooks[0].Service, c.Webhooks[0].Ready = "", 0 }, nil},
		"an authority over":     {func(c *Cluster) { c.Webhooks[0].AuthorityEnds = now.Add(-time.Hour) }, []string{"Problem webhooks*ended 60 min ago*| kubectl edit validatingwebhookconfigurations w"}},
		"an authority ending":   {func(c *Cluster) { c.Webhooks[0].AuthorityEnds = now.Add(time.Hour) }, []string{"Warning webhooks*ends in 60 min*"}},
		"an authority broken":   {func(c *Cluster) { c.Webhooks[0].AuthorityProblem = "bad" }, []string{"Problem webhooks*cannot be read: bad*"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := wellCluster()
			c.ill(&seen)
			found(t, OfCluster(seen), c.want...)
		})
	}
}

// stuck has a change that has been in a step for an hour.
func stuck(c *Cluster) {
	s := &c.Rollouts[0].Status
	s.Phase, s.Step, s.StepStarted = v1alpha1.PhaseProgressing, "s", &metav1.Time{Time: now.Add(-time.Hour)}
}

func TestTimesAreSaidAsPeopleDo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min", 119 * time.Minute: "119 min", 2 * time.Hour: "2 h", 47 * time.Hour: "47 h", 49 * time.Hour: "2 days",
	} {
		if got := long(d); got != want {
			t.Errorf("%v is said %q, want %q", d, got, want)
		}
	}
}

func TestServices(t *testing.T) {
	network := func(name, prefix string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}}}
	}
	taken := func(n int) (out []netip.Addr) {
		for i := range n {
			out = append(out, netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)}))
		}
		return out
	}
	c := Cluster{Now: now, Kubectl: "kubectl", ServiceCIDRs: []*networkingv1.ServiceCIDR{network("kubernetes", "10.96.0.0/25")}, Addresses: taken(100)}
	look := func() []Finding {
		f := findings{check: "services"}
		services(&f, &c)
		return f.all
	}
	found(t, look())
	c.Addresses = taken(121)
	found(t, look(), "Warning services servicecidrs: 5 of 126 IPv4 addresses of Services are left | kubectl get servicecidrs *")
	c.Addresses = taken(126)
	found(t, look(), "Problem services servicecidrs: all 126 IPv4 addresses of Services are given out: no Service can be made | kubectl get servicecidrs *")
	old := network("old", "10.97.0.0/24")
	old.DeletionTimestamp = &metav1.Time{Time: now.Add(-20 * time.Minute)}
	c.Addresses, c.ServiceCIDRs = nil, append(c.ServiceCIDRs, old)
	found(t, look(), "Warning services servicecidr/old: it was deleted 20 min ago, and Services still have addresses of it | kubectl get ipaddresses *")
	c.ServiceCIDRs[0].DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Minute)}
	found(t, look(), "Problem services servicecidrs: all ServiceCIDRs are about to go, and none gives out addresses: no Service can be made | kubectl get servicecidrs *",
		"Warning services servicecidr/old: it was deleted 20 min ago, and Services still have addresses of it | kubectl get ipaddresses *")
}
