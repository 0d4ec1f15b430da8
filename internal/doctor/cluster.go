package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/doctor/diagnosis"
	"github.com/everynode/everynode/internal/storage/members"
)

// answerIn is how long the API has for one answer. Lists of large fleets take a while.
const answerIn = 30 * time.Second

// cached lists what the API server has in memory: it is new enough, and costs it little.
var cached = metav1.ListOptions{ResourceVersion: "0"}

// looker asks one cluster.
type looker struct {
	client  kubernetes.Interface
	own     *everynode.Client
	dynamic dynamic.Interface
	seen    *diagnosis.Cluster
}

// Cluster looks at a cluster. What may not be read is named, and the rest looked at.
func Cluster(ctx context.Context, config *rest.Config) (c diagnosis.Cluster, err error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout, config.UserAgent = -1, answerIn, "everynode-doctor"
	c = diagnosis.Cluster{Now: time.Now(), Server: config.Host, Leases: map[string]*coordinationv1.Lease{}}
	l := looker{seen: &c}
	l.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		return c, fmt.Errorf("use the kubeconfig: %w", err)
	}
	l.own, err = everynode.NewForConfig(config)
	if err != nil {
		return c, err
	}
	l.dynamic, err = dynamic.NewForConfig(config)
	if err != nil {
		return c, fmt.Errorf("use the kubeconfig: %w", err)
	}
	if err := l.reach(ctx, config); err != nil {
		c.Unreachable = err.Error()
		return c, nil //nolint:nilerr // That it does not answer is what is seen.
	}
	for _, look := range []struct {
		kind string
		at   func(context.Context) error
	}{
		{"nodes", l.nodes}, {"leases", l.leases}, {"daemonsets", l.daemonSets}, {"daemonsetrollouts", l.rollouts},
		{"rolloutpolicies", l.policies}, {"nodestartups", l.startups}, {"pods", l.pods},
		{"events", l.gatesOfOthers},
		{"daemonsetvariants", l.variants}, {"fields of Everynode's kinds", l.lacking},
		{"servicecidrs", l.serviceCIDRs}, {"ipaddresses", l.addresses},
		{"validatingwebhookconfigurations", l.validating}, {"mutatingwebhookconfigurations", l.mutating},
		{"mutatingadmissionpolicies", l.startupPolicies},
		{"apiservices", l.extensions},
		{"metrics of the API server", l.unanswered},
	} {
		switch err := look.at(ctx); {
		case err == nil, apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			c.Hidden = append(c.Hidden, look.kind)
		default:
			return c, fmt.Errorf("look at %s: %w", look.kind, err)
		}
	}
	return c, nil
}

// lacking asks which fields of Everynode's kinds the API does not have.
func (l *looker) lacking(ctx context.Context) (err error) {
	l.seen.Lacking, err = definitions.LackingOf(ctx, l.client.Discovery().RESTClient())
	return err
}

// reach asks for the version, the time, and what is not ready.
func (l *looker) reach(ctx context.Context, config *rest.Config) error {
	v, err := l.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	l.seen.Version = v.GitVersion
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+"/version", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	l.seen.Now = time.Now()
	// It has whole seconds.
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		l.seen.ServerNow = at.Add(500 * time.Millisecond)
	}
	var status *apierrors.StatusError
	raw, err := l.client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
	if err != nil && !errors.As(err, &status) {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		if part, bad := strings.CutPrefix(strings.TrimSpace(line), "[-]"); bad {
			l.seen.Unready = append(l.seen.Unready, part)
		}
	}
	return nil
}

func (l *looker) nodes(ctx context.Context) error {
	list, err := l.client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return err
	}
	l.seen.Nodes = pointers(list.Items)
	return nil
}

func (l *looker) serviceCIDRs(ctx context.Context) error {
	list, err := l.client.NetworkingV1().ServiceCIDRs().List(ctx, cached)
	if err != nil {
		return err
	}
	l.seen.ServiceCIDRs = pointers(list.Items)
	return nil
}

func (l *looker) addresses(ctx context.Context) error {
	list, err := l.client.NetworkingV1().IPAddresses().List(ctx, cached)
	if err != nil {
		return err
	}
	for i := range list.Items {
		if ip, err := netip.ParseAddr(list.Items[i].Name); err == nil {
			l.seen.Addresses = append(l.seen.Addresses, ip)
		}
	}
	return nil
}

func (l *looker) leases(ctx context.Context) error {
	list, err := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, cached)
	if err != nil {
		return err
	}
	for _, lease := range pointers(list.Items) {
		l.seen.Leases[lease.Name] = lease
	}
	return nil
}

func (l *looker) daemonSets(ctx context.Context) error {
	list, err := l.client.AppsV1().DaemonSets("").List(ctx, cached)
	if err != nil {
		return err
	}
	l.seen.DaemonSets = pointers(list.Items)
	return nil
}

func (l *looker) rollouts(ctx context.Context) error {
	list, err := l.own.DaemonSetRollouts("").List(ctx, cached)
	if err != nil {
		return err
	}
	l.seen.Rollouts = pointers(list.Items)
	return nil
}

func (l *looker) policies(ctx context.Context) error {
	list, err := l.own.RolloutPolicies("").List(ctx, cached)
	if err != nil {
		return err
	}
	l.seen.Policies = pointers(list.Items)
	return nil
}

func (l *looker) startups(ctx context.Context) error {
	list, err := l.own.NodeStartups().List(ctx, cached)
	l.seen.StartupsUnread = err != nil && !apierrors.IsNotFound(err) // without the kind there are none
	if err != nil {
		return err
	}
	l.seen.Startups = pointers(list.Items)
	return nil
}

func (l *looker) variants(ctx context.Context) error {
	list, err := l.own.DaemonSetVariants("").List(ctx, cached)
	if err != nil {
		return err
	}
	l.seen.Variants = pointers(list.Items)
	return nil
}

func (l *looker) validating(ctx context.Context) error {
	list, err := l.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, cached)
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		for _, w := range c.Webhooks {
			err := l.webhook(ctx, "validatingwebhookconfigurations", c.Name, w.Name, w.FailurePolicy, w.ClientConfig)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *looker) mutating(ctx context.Context) error {
	list, err := l.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, cached)
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		for _, w := range c.Webhooks {
			err := l.webhook(ctx, "mutatingwebhookconfigurations", c.Name, w.Name, w.FailurePolicy, w.ClientConfig)
			if err != nil {
				return err
			}
			is := &l.seen.Webhooks[len(l.seen.Webhooks)-1]
			is.ChangesPods, is.AskedAgain = changesPods(w.Rules), askedAgain(w.ReinvocationPolicy)
		}
	}
	return nil
}

// webhook looks where a webhook is, and who could answer there.
func (l *looker) webhook(
	ctx context.Context,
	kind, configuration, name string,
	policy *admissionv1.FailurePolicyType,
	to admissionv1.WebhookClientConfig,
) error {
	w := diagnosis.Webhook{
		Resource:      kind,
		Configuration: configuration,
		Name:          name,
		Demanding:     policy == nil || *policy == admissionv1.Fail,
	}
	if len(to.CABundle) > 0 {
		w.AuthorityEnds, w.AuthorityProblem = authority(to.CABundle)
	}
	if s := to.Service; s != nil {
		w.Service = s.Namespace + "/" + s.Name
		_, err := l.client.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			w.Missing = true
		case err != nil:
			return err
		default:
			slices, err := l.client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name,
			})
			if err != nil {
				return err
			}
			w.Ready = ready(slices.Items)
		}
	}
	l.seen.Webhooks = append(l.seen.Webhooks, w)
	return nil
}

// unanswered counts how often webhooks could not be asked, by the API server's own metrics.
func (l *looker) unanswered(ctx context.Context) error {
	if len(l.seen.Webhooks) == 0 {
		return nil
	}
	raw, err := l.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	times := webhookFailures(string(raw))
	for i := range l.seen.Webhooks {
		l.seen.Webhooks[i].Unanswered = times[l.seen.Webhooks[i].Name]
	}
	return nil
}

// webhookFailures reads from metrics how often webhooks could not be called: those that were left out then, and those
// that refused then.
func webhookFailures(metrics string) map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(metrics) {
		left := strings.HasPrefix(line, "apiserver_admission_webhook_fail_open_count{")
		refused := strings.HasPrefix(line, "apiserver_admission_webhook_rejection_count{") &&
			strings.Contains(line, `error_type="calling_webhook_error"`)
		if !left && !refused {
			continue
		}
		_, name, _ := strings.Cut(line, `name="`)
		name, _, _ = strings.Cut(name, `"`)
		_, value, _ := strings.Cut(line, "} ")
		if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
			out[name] += int(n)
		}
	}
	return out
}

// ready counts the endpoints that can be asked.
func ready(slices []discoveryv1.EndpointSlice) (n int) {
	for _, s := range slices {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n
}

// authority returns the end of the authority that lasts longest.
func authority(bundle []byte) (ends time.Time, problem string) {
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return ends, err.Error()
		}
		if certificate.NotAfter.After(ends) {
			ends = certificate.NotAfter
		}
	}
	if ends.IsZero() {
		return ends, "there is no certificate in it"
	}
	return ends, ""
}

// extensions looks at the API servers of others.
func (l *looker) extensions(ctx context.Context) error {
	kind := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	list, err := l.dynamic.Resource(kind).List(ctx, cached)
	if err != nil {
		return err
	}
	for _, item := range list.Items {
		conditions, _, _ := unstructured.NestedSlice(item.Object, "status", "conditions")
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Available" && m["status"] == "False" {
				l.seen.Extensions = append(l.seen.Extensions, diagnosis.Extension{
					Name:    item.GetName(),
					Problem: fmt.Sprint(m["message"]),
				})
			}
		}
	}
	return nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// Members are the servers, as one of them tells of all.
func Members(list members.List) (all []diagnosis.Member) {
	var newest uint64
	for _, s := range list.Servers {
		newest = max(newest, s.Applied)
	}
	for _, s := range list.Servers {
		m := diagnosis.Member{Name: cmp.Or(s.Name, s.ID), Version: s.Version, Problem: s.Problem, Learner: s.Learner,
			Differs: s.Differs}
		if s.Problem == "" {
			m.Behind = newest - s.Applied
		}
		all = append(all, m)
	}
	return all
}
