package client

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/rollout"
	"github.com/everynode/everynode/internal/change/survey"
)

// lists reads the objects of a cluster.
type lists struct {
	client    kubernetes.Interface
	own       *everynode.Client
	namespace string
}

// read reaches the cluster, for lists.
func (c *cluster) read() (*lists, error) {
	l, _, err := c.readWith()
	return l, err
}

// readWith also returns how the cluster is reached.
func (c *cluster) readWith() (*lists, *rest.Config, error) {
	config, namespace, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	l, err := newLists(config, namespace)
	return l, config, err
}

func newLists(config *rest.Config, namespace string) (l *lists, err error) {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "everynode"
	l = &lists{namespace: namespace}
	l.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig: %w", err)
	}
	l.own, err = everynode.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// look lists all that a survey needs. It reads only. Where the API does not have the kinds of Everynode, or does not
// show them, there are no policies, and no variants; hidden says so.
func (l *lists) look(ctx context.Context) (s *survey.Survey, hidden string, err error) {
	o := survey.Objects{Now: time.Now(), Locate: time.LoadLocation}
	// What the API server has in memory is new enough, and costs it little.
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := l.client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return nil, "", rollout.Unread("nodes", err)
	}
	pods, err := l.client.CoreV1().Pods("").List(ctx, cached)
	if err != nil {
		return nil, "", rollout.Unread("pods", err)
	}
	sets, err := l.client.AppsV1().DaemonSets("").List(ctx, cached)
	if err != nil {
		return nil, "", rollout.Unread("DaemonSets", err)
	}
	revisions, err := l.client.AppsV1().ControllerRevisions("").List(ctx, cached)
	if err != nil {
		return nil, "", rollout.Unread("ControllerRevisions", err)
	}
	o.Beside, o.Foreign, err = l.elsewhere(ctx)
	if err != nil {
		return nil, "", err
	}
	o.Nodes, o.Pods = pointers(nodes.Items), pointers(pods.Items)
	o.DaemonSets, o.Revisions = pointers(sets.Items), pointers(revisions.Items)
	startups, err := l.own.NodeStartups().List(ctx, cached)
	switch {
	case err == nil:
		o.Startups = pointers(startups.Items)
	case rollout.Hidden(err) == "":
		return nil, "", fmt.Errorf("list NodeStartups: %w", err)
	}
	unread := ""
	variants, err := l.own.DaemonSetVariants("").List(ctx, cached)
	switch {
	case err == nil:
		o.Variants = pointers(variants.Items)
	case apierrors.IsForbidden(err):
		unread = "DaemonSetVariants may not be read, so this is what holds if there are none: " + err.Error()
	case rollout.Hidden(err) == "":
		return nil, "", fmt.Errorf("list DaemonSetVariants: %w", err)
	}
	policies, err := l.own.RolloutPolicies("").List(ctx, cached)
	if err != nil {
		if hidden = rollout.Hidden(err); hidden == "" {
			return nil, "", fmt.Errorf("list RolloutPolicies: %w", err)
		}
		if unread != "" {
			hidden += "; " + unread
		}
		return survey.New(o), hidden, nil
	}
	rollouts, err := l.own.DaemonSetRollouts("").List(ctx, cached)
	if err != nil {
		return nil, "", rollout.Unread("DaemonSetRollouts", err)
	}
	o.Policies, o.Rollouts = pointers(policies.Items), pointers(rollouts.Items)
	return survey.New(o), unread, nil
}

// elsewhere reports whether another controller makes the pods, and whether the API server is another than Everynode's.
func (l *lists) elsewhere(ctx context.Context) (beside, foreign bool, err error) {
	beside, err = l.beside(ctx)
	if err == nil {
		foreign, err = l.foreign(ctx)
	}
	return beside, foreign, err
}

// beside reports whether Everynode answers for pods that another controller makes. To whom the API does not show that,
// the DaemonSets that are taken over do.
func (l *lists) beside(ctx context.Context) (bool, error) {
	_, err := l.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, registration.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the webhook %s: %w", registration.Name, err)
	}
	return true, nil
}

// foreign reports whether the API server is another than Everynode's: its kinds are definitions there. To whom the API
// does not show them, the agents of the nodes tell.
func (l *lists) foreign(ctx context.Context) (bool, error) {
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rolloutpolicies.everynode.io"
	err := l.client.Discovery().RESTClient().Get().AbsPath(definition).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the definition of RolloutPolicies: %w", err)
	}
	return true, nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// events are the latest about a pod, the newest last.
func (l *lists) events(ctx context.Context, namespace, podName, uid string) ([]corev1.Event, error) {
	list, err := l.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + podName + ",involvedObject.uid=" + uid,
	})
	if err != nil {
		return nil, fmt.Errorf("list events of pod %s/%s: %w", namespace, podName, err)
	}
	return list.Items, nil
}
