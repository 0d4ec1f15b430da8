package opening

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// machines are simulated nodes, in this process: they outlive the server as machines do.
type machines struct {
	sim  *simulator.Simulator
	line *line
}

// account is who the nodes are. An administrator's requests are served at once, however many there are; these wait for
// seats, as those of machines' agents do.
const account = "machines"

// admit lets the account do what nodes do, in the seats of nodes.
func admit(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("let nodes do what they do: %w", err)
	}
	all := []string{flowcontrolv1.ResourceAll}
	seats := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: account}}
	seats.Spec = flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "system"},
		MatchingPrecedence:         500, // as that of nodes
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{{
				Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: account},
			}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{
				{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all},
			},
		}},
	}
	_, err = client.FlowcontrolV1().FlowSchemas().Create(ctx, seats, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("give nodes their seats: %w", err)
	}
	return nil
}

// slowly has daemons take their time: a node is ready long before they are, so that nothing but its gate keeps other
// pods away.
const slowly = `
faults:
- {name: takes its time, pods: {labels: {daemon: "yes"}}, slowStart: {takes: 500ms, upTo: 2s}}
`

// startMachines starts what nodes run on; there are none yet. It ends with ctx.
func startMachines(ctx context.Context, config *restclient.Config) (*machines, error) {
	m := &machines{line: &line{open: closed()}}
	config = restclient.CopyConfig(config)
	config.Impersonate = restclient.ImpersonationConfig{UserName: account}
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return held{m.line, to} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of the nodes: %w", err)
	}
	unsafe := true // the simulator changes nothing that it reads
	informers, err := cache.New(config, cache.Options{Scheme: scheme.Scheme, DefaultUnsafeDisableDeepCopy: &unsafe})
	if err != nil {
		return nil, fmt.Errorf("make the informers of the nodes: %w", err)
	}
	ills, err := illness.Parse([]byte(slowly))
	if err != nil {
		return nil, fmt.Errorf("read how daemons start: %w", err)
	}
	m.sim, err = simulator.New(simulator.Config{
		Informers: informers, Writer: simulator.NewWriter(client), Faults: ills, NodeWorkers: 64, PodWorkers: 64,
	})
	if err != nil {
		return nil, fmt.Errorf("make the nodes: %w", err)
	}
	go func() { _ = informers.Start(ctx) }()
	go func() { _ = m.sim.Run(ctx) }()
	return m, nil
}

// join has nodes join, so many a second.
func (m *machines) join(ctx context.Context, nodes, rate int) {
	begin := time.Now()
	for i := range nodes {
		pause(ctx, time.Until(begin.Add(time.Duration(i)*time.Second/time.Duration(rate))))
		if ctx.Err() != nil {
			return
		}
		m.sim.StartNode(fmt.Sprintf("node-%05d", i+1))
	}
}

// line is the way of all nodes to the server. While it is held, requests wait.
type line struct {
	mu   sync.Mutex
	open chan struct{}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (l *line) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open)
}

// held sends requests by a line.
type held struct {
	line *line
	to   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h held) RoundTrip(req *http.Request) (*http.Response, error) {
	h.line.mu.Lock()
	open := h.line.open
	h.line.mu.Unlock()
	select {
	case <-open:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return h.to.RoundTrip(req)
}
