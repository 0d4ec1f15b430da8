package foreign

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

var programs = flag.String("kubernetes", "", "folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler; make foreign makes it")

// patience is how long a test waits for what must happen, on a machine with much else to do.
const patience = 2 * time.Minute

// cluster is a Kubernetes of which nothing is ours but the simulated nodes.
type cluster struct {
	t *testing.T
	// dir has all files; kubeconfig is an administrator's; audit is the API server's log of requests.
	dir, kubeconfig, audit string
	url                    string
	config                 *rest.Config
	client                 kubernetes.Interface
	everynode              string
	manager, controller    *process
	// scheduler is kube-scheduler.
	scheduler *process
	// plane is the database and the API server.
	plane []*process
	pages int
	// hurry are flags that have kube-scheduler and kube-controller-manager ask more often, and patient such as have the
	// latter wait longer for nodes.
	hurry, patient []string
	// admits are admission plugins that the API server has beside its usual ones.
	admits []string
	// joins is how real nodes join; nil where nodes are simulated.
	joins *joining
}

// process is a program that runs until the test ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan error
}

// begin starts a program whose output goes to a file.
func (c *cluster) begin(name, path string, args ...string) *process {
	c.t.Helper()
	p := &process{name: name, log: filepath.Join(c.dir, name+".log"), done: make(chan error, 1)}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.dir, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	lasting() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		c.t.Fatalf("start %s: %v", name, err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	c.t.Cleanup(func() {
		p.stop()
		if c.t.Failed() {
			c.t.Logf("the end of the log of %s:\n%s", name, p.tail(30))
		}
	})
	return p
}

// lasting takes what is to be done by a thread that does not end before the tests do. With Pdeathsig a program dies with
// the thread that has started it, and those end that have been in the namespaces of real nodes.
var lasting = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range jobs {
			do()
		}
	}()
	return jobs
})

// again starts a program that has ended as it was started before.
func (c *cluster) again(p *process) *process {
	c.t.Helper()
	return c.begin(p.name, p.cmd.Path, p.cmd.Args[1:]...)
}

// stop ends a program, and waits for it.
func (p *process) stop() {
	if p.done == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended.
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	p.done = nil
}

// tail is the end of a program's output.
func (p *process) tail(lines int) string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// start runs a Kubernetes with simulated nodes until the test ends.
func start(t *testing.T, nodes int) *cluster {
	t.Helper()
	return startWith(t, nodes, faults)
}

// startWith is start with nodes that have faults.
func startWith(t *testing.T, nodes int, faults string) *cluster {
	t.Helper()
	c := folder(t)
	c.startPlane()
	c.simulate(nodes, faults)
	return c
}

// folder is a cluster of which nothing runs yet.
func folder(t *testing.T) *cluster {
	t.Helper()
	if *programs == "" {
		t.Skip("make foreign runs this, with Kubernetes' own programs")
	}
	c := &cluster{t: t, dir: t.TempDir(), everynode: os.Getenv("EVERYNODE_BINARY")}
	if c.everynode == "" {
		t.Fatal("set EVERYNODE_BINARY to the program under test; make foreign does")
	}
	c.kubeconfig, c.audit = filepath.Join(c.dir, "admin.kubeconfig"), filepath.Join(c.dir, "audit.log")
	t.Cleanup(c.noteRights)
	c.keys()
	return c
}

// startPlane runs everything but nodes.
func (c *cluster) startPlane() {
	c.t.Helper()
	c.startAPI()
	c.scheduler = c.begin("kube-scheduler", filepath.Join(*programs, "kube-scheduler"), append([]string{
		"--kubeconfig=" + c.kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--authentication-kubeconfig=" + c.kubeconfig, "--authorization-kubeconfig=" + c.kubeconfig,
	}, c.hurry...)...)
	c.startManager("*")
}

// keys writes what the API server wants to know at its start.
func (c *cluster) keys() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		c.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write("sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	c.write("tokens.csv", "administrator,admin,1,system:masters\n")
	c.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, users: [\""+account+"\", \""+besideAccount+"\", \""+chartAccount+"\"]}]\n")
}

// write makes a file, and returns its path.
func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *cluster) port() string {
	c.t.Helper()
	port, err := freeport.Take()
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprint(port)
}

func (c *cluster) startAPI() {
	client, peer := "http://127.0.0.1:"+c.port(), "http://127.0.0.1:"+c.port()
	database := c.begin("etcd", filepath.Join(*programs, "etcd"), "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	port, certificates, host := c.port(), filepath.Join(c.dir, "certificates"), "127.0.0.1"
	if c.joins != nil {
		host = c.joins.host
	}
	c.url = "https://" + host + ":" + port
	server := c.begin("kube-apiserver", filepath.Join(*programs, "kube-apiserver"), append([]string{
		"--etcd-servers=" + client, "--bind-address=" + host, "--secure-port=" + port, "--cert-dir=" + certificates,
		// Nobody goes there; without it the machine must have a network.
		"--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--token-auth-file=" + filepath.Join(c.dir, "tokens.csv"),
		"--service-account-issuer=https://foreign.example.com",
		"--service-account-key-file=" + filepath.Join(c.dir, "sa.pub"),
		"--service-account-signing-key-file=" + filepath.Join(c.dir, "sa.key"),
		"--audit-policy-file=" + filepath.Join(c.dir, "audit.yaml"), "--audit-log-path=" + c.audit,
		"--enable-admission-plugins=" + strings.Join(c.admits, ","),
	}, c.joins.serverFlags()...)...)
	c.plane = []*process{database, server}
	c.eventually("the API server writes its certificate", func(context.Context) error {
		_, err := os.Stat(filepath.Join(certificates, "apiserver.crt"))
		return err
	})
	c.kubeconfig = c.kubeconfigOf("admin", "administrator")
	var err error
	c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	c.config.QPS = -1
	c.client, err = kubernetes.NewForConfig(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the API server is ready", func(ctx context.Context) error {
		return c.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// kubeconfigOf writes a kubeconfig for somebody with a token.
func (c *cluster) kubeconfigOf(name, token string) string {
	c.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["foreign"] = &clientcmdapi.Cluster{Server: c.url,
		CertificateAuthority: filepath.Join(c.dir, "certificates", "apiserver.crt")}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["foreign"] = &clientcmdapi.Context{Cluster: "foreign", AuthInfo: name}
	config.CurrentContext = "foreign"
	path := filepath.Join(c.dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// startManager runs kube-controller-manager with some of its controllers, in place of the one before.
func (c *cluster) startManager(controllers string) {
	c.t.Helper()
	if c.manager != nil {
		c.manager.stop()
	}
	c.manager = c.begin("kube-controller-manager", filepath.Join(*programs, "kube-controller-manager"), append([]string{
		"--kubeconfig=" + c.kubeconfig, "--controllers=" + controllers,
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials",
		"--service-account-private-key-file=" + filepath.Join(c.dir, "sa.key"),
		"--root-ca-file=" + filepath.Join(c.dir, "certificates", "apiserver.crt"),
	}, slices.Concat(c.joins.managerFlags(), c.hurry, c.patient)...)...)
}

// faults has containers crash that read a level that there is not.
const faults = `faults: [{name: level, badContent: {key: level, value: verbos, after: 1s, exitCode: 2}}]`

// simulate has nodes that keep themselves ready, and run what is bound to them.
func (c *cluster) simulate(nodes int, plan string) { c.simulateMore("sim-", nodes, plan) }

// simulateMore is simulate with names of their own.
func (c *cluster) simulateMore(prefix string, nodes int, plan string) {
	c.t.Helper()
	informers, err := crcache.New(c.config, crcache.Options{DefaultUnsafeDisableDeepCopy: ptr.To(true)})
	if err != nil {
		c.t.Fatal(err)
	}
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	faults, err := illness.Parse([]byte(plan))
	if err != nil {
		c.t.Fatal(err)
	}
	sim, err := simulator.New(simulator.Config{
		Faults: faults, Nodes: nodes, NamePrefix: prefix, Informers: informers, Writer: simulator.NewWriter(c.client), Version: "v1.36.0",
		Events: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"}),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- informers.Start(ctx) }()
	go func() { ended <- sim.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			c.t.Errorf("the simulated nodes ended with: %v", err)
		}
		events.Shutdown()
	})
}

// eventually waits until check returns nil.
func (c *cluster) eventually(what string, check func(ctx context.Context) error) {
	c.t.Helper()
	await(c.t, what, check)
}

func await(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	eventually.Nil(t, patience, what, check)
}

// answer is what a command said, and how it ended.
type answer struct {
	line, out, errOut string
	code              int
}

// as runs a command with somebody's kubeconfig.
func (c *cluster) as(t *testing.T, kubeconfig, program string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, &out, &errOut
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.dir, "PATH="+c.dir+":"+os.Getenv("PATH"))
	a := answer{line: filepath.Base(program) + " " + strings.Join(args, " ")}
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("run %s: %v", a.line, err)
	}
	a.out, a.errOut, a.code = out.String(), errOut.String(), cmd.ProcessState.ExitCode()
	return a
}

// run is what an administrator does with everynode.
func (c *cluster) run(t *testing.T, args ...string) answer {
	t.Helper()
	return c.as(t, c.kubeconfig, c.everynode, args...)
}

// kubectl runs kubectl as an administrator, and wants it to end well.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	a := c.run(t, append([]string{"kubectl"}, args...)...)
	a.ends(t, 0)
	return a.out
}

// ends wants an exit code.
func (a answer) ends(t *testing.T, code int) answer {
	t.Helper()
	if a.code != code {
		t.Fatalf("%s ended with %d, want %d:\n%s%s", a.line, a.code, code, a.out, a.errOut)
	}
	return a
}

// says wants texts in the output; those who read it may have it broken into lines.
func (a answer) says(t *testing.T, texts ...string) answer {
	t.Helper()
	all := strings.Join(strings.Fields(a.out+a.errOut), " ")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%s does not say %q:\n%s%s", a.line, text, a.out, a.errOut)
		}
	}
	return a
}
