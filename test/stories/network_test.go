package stories

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// The name that only a name server outside of the cluster knows, and its address.
const outsideName, outsideAddress = "beyond.example", "192.0.2.77"

// clusterDNS is where every node's name server answers.
const clusterDNS = "10.96.0.10"

// matrix [without NODE] asks from every pod with the label matrix for everything
// that there is to reach: the pods, their host ports, every Service at each of its
// addresses, and names of all kinds. It waits until everything is reached, and then
// everything must be reached at once a second time. What is on NODE, which is cut
// off, neither asks nor is asked for, and nobody may be led there.
func matrix(ts *testscript.TestScript, neg bool, args []string) {
	if neg || (len(args) != 0 && (len(args) != 2 || args[0] != "without")) {
		ts.Fatalf("usage: matrix [without NODE]")
	}
	began := time.Now()
	var missed []string
	count, rounds := 0, 0
	for whole := 0; whole < 2; {
		m := readMap(ts, strings.Join(args, " "))
		count, missed = m.ask(ts)
		rounds++
		if len(missed) == 0 {
			whole++
			continue
		}
		if whole > 0 || time.Since(began) > patience {
			ts.Fatalf("of %d questions %d were not answered as they should, after %d rounds and %s (all had been before: %v):\nFROM\tTO\tSAID\n%s",
				count, len(missed), rounds, time.Since(began).Round(time.Second), whole > 0, strings.Join(missed, "\n"))
		}
		ts.Logf("round %d: %d of %d questions were not answered as they should, such as: %s", rounds, len(missed), count, missed[0])
		time.Sleep(longestPause)
	}
	ts.Logf("%d of %d questions were answered as they should, in round %d of %d, after %s", count, count, rounds-1, rounds, time.Since(began).Round(100*time.Millisecond))
}

// landscape is what there is to reach.
type landscape struct {
	pods     []corev1.Pod
	nodes    []corev1.Node
	services []corev1.Service
}

func readMap(ts *testscript.TestScript, without string) *landscape {
	var pods corev1.PodList
	var nodes corev1.NodeList
	var services corev1.ServiceList
	for what, into := range map[string]any{"pods -l matrix": &pods, "nodes": &nodes, "services -l matrix": &services} {
		cmd := exec.Command(ts.Getenv("EVERYNODE"), append([]string{"kubectl", "get", "-o", "json"}, strings.Fields(what)...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("WORK"))
		out, err := cmd.Output()
		ts.Check(err)
		ts.Check(json.Unmarshal(out, into))
	}
	cut := strings.TrimPrefix(without, "without ")
	return &landscape{
		pods:     slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == cut }),
		nodes:    slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == cut }),
		services: services.Items,
	}
}

// ask asks from every pod at once, and says how many questions there were and
// which were not answered as they should.
func (m *landscape) ask(ts *testscript.TestScript) (questions int, missed []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range m.pods {
		pod := &m.pods[i]
		list := m.questions(pod)
		questions += len(list)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, ts.Getenv("EVERYNODE"), "kubectl", "exec", "-i", pod.Name, "--", "demo", "reach")
			cmd.Env = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("WORK"))
			cmd.Stdin = strings.NewReader(strings.Join(list, "\n") + "\n")
			out, err := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			last := len(lines) - 1
			if err == nil && lines[last] == fmt.Sprintf("reached %d of %d", len(list), len(list)) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, line := range lines {
				missed = append(missed, fmt.Sprintf("%s on %s\t%s", pod.Name, pod.Spec.NodeName, line))
			}
			if err != nil {
				missed = append(missed, fmt.Sprintf("%s on %s\t%v", pod.Name, pod.Spec.NodeName, err))
			}
		})
	}
	all.Wait()
	slices.Sort(missed)
	return questions, missed
}

// questions are the lines for `demo reach` in a pod.
func (m *landscape) questions(from *corev1.Pod) []string {
	a := &asker{landscape: m, from: from}
	for i := range m.pods {
		a.pod(&m.pods[i])
	}
	for i := range m.services {
		a.service(&m.services[i])
	}
	a.add("a name outside", "a:"+outsideName, "^"+regexp.QuoteMeta(outsideAddress)+"$")
	a.add("a name of nobody", "a:nobody.default.svc.cluster.local", "no such host")
	a.add("the API's name", "a:kubernetes.default", "^10\\.96\\.0\\.1$")
	return a.lines
}

// asker collects the questions of one pod.
type asker struct {
	*landscape
	from  *corev1.Pod
	lines []string
}

func (a *asker) add(name, target, want string) {
	a.lines = append(a.lines, name+"\t"+target+"\t"+want)
}

func dashes(ip string) string { return strings.ReplaceAll(ip, ".", "-") }

func (a *asker) pod(to *corev1.Pod) {
	for _, port := range to.Spec.Containers[0].Ports {
		who := fmt.Sprintf("pod=%s node=%s ", to.Name, to.Spec.NodeName)
		a.add("pod "+to.Name, at(port.Protocol, to.Status.PodIP, port.ContainerPort), who)
		if port.HostPort != 0 && !to.Spec.HostNetwork {
			a.add("host port of "+to.Name, at(port.Protocol, to.Status.HostIP, port.HostPort), who)
		}
	}
	a.add("name of "+to.Name, "a:"+dashes(to.Status.PodIP)+".default.pod.cluster.local", exactly(to.Status.PodIP))
}

func at(protocol corev1.Protocol, host string, port int32) string {
	scheme := "http"
	if protocol == corev1.ProtocolUDP {
		scheme = "udp"
	}
	return fmt.Sprintf("%s://%s:%d", scheme, host, port)
}

// exactly matches a list of records.
func exactly(records ...string) string {
	slices.Sort(records)
	for i, r := range records {
		records[i] = regexp.QuoteMeta(r)
	}
	return "^" + strings.Join(records, `\n`) + "$"
}

// behind are the pods that a Service leads to, if they are on that node; on any
// node if it is empty.
func (a *asker) behind(svc *corev1.Service, node string) (pods []*corev1.Pod) {
	for i := range a.pods {
		if p := &a.pods[i]; p.Labels["app"] == svc.Spec.Selector["app"] && (node == "" || node == p.Spec.NodeName) {
			pods = append(pods, p)
		}
	}
	return pods
}

// oneOf matches the answer of one of the pods.
func oneOf(pods []*corev1.Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return "pod=(" + strings.Join(names, "|") + ") "
}

func (a *asker) service(svc *corev1.Service) {
	full := svc.Name + ".default.svc.cluster.local"
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		a.headless(svc, full)
		return
	}
	a.add("name "+svc.Name, "a:"+svc.Name, exactly(svc.Spec.ClusterIP))
	a.add("address of "+svc.Name, "ptr:"+svc.Spec.ClusterIP, exactly(full+"."))
	for _, port := range svc.Spec.Ports {
		a.add("port "+port.Name+" of "+svc.Name, srv(port, full), exactly(fmt.Sprintf("%s.:%d", full, port.Port)))
		inside, local := a.behind(svc, ""), a.behind(svc, a.from.Spec.NodeName)
		if p := svc.Spec.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal {
			inside = local
		}
		a.add("cluster address of "+svc.Name, at(port.Protocol, svc.Spec.ClusterIP, port.Port), oneOf(inside))
		a.add("name of "+svc.Name, at(port.Protocol, svc.Name+".default", port.Port), oneOf(inside))
		a.outside(svc, port)
	}
}

func srv(port corev1.ServicePort, full string) string {
	return "srv:_" + port.Name + "._" + strings.ToLower(string(port.Protocol)) + "." + full
}

// outside asks at the addresses for those who are outside of the cluster.
func (a *asker) outside(svc *corev1.Service, port corev1.ServicePort) {
	for i := range a.nodes {
		node := &a.nodes[i]
		if port.NodePort == 0 {
			break
		}
		who := a.behind(svc, "")
		if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && node.Name != a.from.Spec.NodeName {
			who = a.behind(svc, node.Name) // a node's own traffic goes everywhere
		}
		a.add("node port of "+svc.Name+" on "+node.Name, at(port.Protocol, node.Status.Addresses[0].Address, port.NodePort), oneOf(who))
	}
	further := slices.Clone(svc.Spec.ExternalIPs)
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		further = append(further, ingress.IP)
	}
	for _, ip := range further {
		a.add("outer address of "+svc.Name, at(port.Protocol, ip, port.Port), oneOf(a.behind(svc, "")))
	}
}

func (a *asker) headless(svc *corev1.Service, full string) {
	var ips []string
	pods := a.behind(svc, "")
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range pods {
		ips = append(ips, p.Status.PodIP)
	}
	a.add("name "+svc.Name, "a:"+svc.Name, exactly(slices.Clone(ips)...))
	for _, port := range svc.Spec.Ports {
		a.add("name of "+svc.Name, at(port.Protocol, svc.Name, port.Port), oneOf(pods))
		var targets []string
		for _, p := range pods {
			own := dashes(p.Status.PodIP) + "." + full
			targets = append(targets, fmt.Sprintf("%s.:%d", own, port.Port))
			a.add("own name of "+p.Name, at(port.Protocol, own, port.Port), oneOf([]*corev1.Pod{p}))
		}
		a.add("port "+port.Name+" of "+svc.Name, srv(port, full), exactly(targets...))
	}
}

// asknode NODE TARGET REGEXP asks from a node's own network until the answer matches:
// its name server for the addresses of a:NAME, or the server at tcp:HOST:PORT for a
// page. It needs no control plane.
func askNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: asknode NODE a:NAME|tcp:HOST:PORT REGEXP")
	}
	want, err := regexp.Compile(args[2])
	ts.Check(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		answer := fromNode(recordedProcess(ts, args[0], "init"), args[1])
		if want.MatchString(answer) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("from %s, %s never said what matches %q; the last answer was %q", args[0], args[1], args[2], answer)
		}
	}
}

// fromNode asks in the network namespace of a process; the answer may be an error.
func fromNode(process int, target string) string {
	answer := make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", process))
		if err == nil {
			err = errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), ns.Close())
		}
		if err != nil {
			answer <- err.Error()
			return
		}
		kind, what, _ := strings.Cut(target, ":")
		if kind == "a" {
			answer <- askName(what)
		} else {
			answer <- askPage(what)
		}
	}()
	return <-answer
}

func askName(name string) string {
	reply, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), clusterDNS+":53")
	if err != nil {
		return err.Error()
	}
	lines := []string{dns.RcodeToString[reply.Rcode]}
	for _, record := range reply.Answer {
		lines = append(lines, strings.TrimPrefix(record.String(), record.Header().String()))
	}
	return strings.Join(lines, "\n")
}

func askPage(address string) string {
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err.Error()
	}
	page, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(page)
}

// outsideNames starts a name server outside of the cluster that knows one name,
// once in a script, and makes it the one of every node.
func outsideNames(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: outsidenames")
	}
	gateway, err := gatewayOf(ts.Getenv("DATA"))
	ts.Check(err)
	if ts.Getenv("OUTSIDE") == "" {
		serveOutside(ts, gateway)
		ts.Setenv("OUTSIDE", gateway)
	}
	file := filepath.Join(ts.Getenv("WORK"), "resolv.conf")
	ts.Check(os.WriteFile(file, []byte("nameserver "+gateway+"\n"), 0o644))
	for _, node := range []string{ts.Getenv("NODE1"), ts.Getenv("NODE2"), ts.Getenv("NODE3")} {
		// The mount ends with the node's namespace.
		ns := fmt.Sprintf("--mount=/proc/%d/ns/mnt", nodeProcess(ts, node, "init"))
		ts.Check(ts.Exec("nsenter", ns, "mount", "--bind", file, "/etc/resolv.conf"))
	}
}

func serveOutside(ts *testscript.TestScript, address string) {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(address, "53"))
	ts.Check(err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		reply := new(dns.Msg).SetRcode(r, dns.RcodeNameError)
		if q := r.Question[0]; strings.EqualFold(q.Name, outsideName+".") {
			reply.Rcode = dns.RcodeSuccess
			if q.Qtype == dns.TypeA {
				reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(outsideAddress)}}
			}
		}
		_ = w.WriteMsg(reply) // Who asked may be gone.
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	ts.Defer(func() {
		_ = conn.Close()
		<-ended
	})
}
