package pods

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/podworker"
)

// maxHookBody bounds what is read of an answer to a hook's request.
const maxHookBody = 10 << 10

// postStart runs the hook; a container whose hook fails is stopped.
func (t task) postStart(ctx, setUp context.Context, c *corev1.Container, id string) podworker.Outcome {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return podworker.Outcome{}
	}
	err := t.hook(setUp, c, id, c.Lifecycle.PostStart, 0)
	if err == nil {
		return podworker.Outcome{}
	}
	if setUp.Err() != nil {
		// The pod is being deleted: whoever does that stops the container too.
		return podworker.Outcome{Reason: podworker.ReasonPostStartHookError, Message: err.Error()}
	}
	t.cfg.Events.Container(t.pod, c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	klog.FromContext(ctx).Info("A postStart hook failed, stopping the container", "pod", klog.KObj(t.pod), "container",
		c.Name, "err", err)
	grace := int64(defaultGrace)
	if t.pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *t.pod.Spec.TerminationGracePeriodSeconds
	}
	t.cfg.Events.Container(t.pod, c.Name, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
	if stopErr := t.stop(ctx, c, id, time.Duration(grace)*time.Second); stopErr != nil {
		klog.FromContext(ctx).Info("Could not stop a container whose postStart hook failed", "container", c.Name, "err",
			stopErr)
	}
	return podworker.Outcome{Reason: podworker.ReasonPostStartHookError, Message: err.Error()}
}

// minKill is how long a container has to stop at least, however long its hook took.
const minKill = 2 * time.Second

// stop runs the container's preStop hook, if it has one, and stops it, both within grace. Without c there is no hook.
func (t task) stop(ctx context.Context, c *corev1.Container, id string, grace time.Duration) error {
	began := t.cfg.Clock.Now()
	if c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		t.preStop(ctx, c, id, grace)
		grace = max(grace-t.cfg.Clock.Since(began), min(minKill, grace))
	}
	return t.cfg.Runtime.StopContainer(ctx, id, grace)
}

// preStop runs the hook for no longer than grace. The container is stopped whether it works or not.
func (t task) preStop(ctx context.Context, c *corev1.Container, id string, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := t.hook(ctx, c, id, c.Lifecycle.PreStop, grace); err != nil {
		klog.FromContext(ctx).Info("A preStop hook failed", "pod", klog.KObj(t.pod), "container", c.Name, "err", err)
		t.cfg.Events.Container(t.pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

func (t task) hook(ctx context.Context, c *corev1.Container, id string, h *corev1.LifecycleHandler,
	timeout time.Duration) error {
	switch {
	case h.Exec != nil:
		stdout, stderr, code, err := t.cfg.Runtime.ExecSync(ctx, id, h.Exec.Command, timeout)
		if err != nil {
			return fmt.Errorf("exec %q: %w", strings.Join(h.Exec.Command, " "), err)
		}
		if code != 0 {
			return fmt.Errorf("exec %q exited with %d: %s%s", strings.Join(h.Exec.Command, " "), code, stdout, stderr)
		}
		return nil
	case h.HTTPGet != nil:
		return t.hookHTTP(ctx, c, h.HTTPGet)
	case h.Sleep != nil:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.cfg.Clock.After(time.Duration(h.Sleep.Seconds) * time.Second):
			return nil
		}
	default:
		return fmt.Errorf("invalid handler: %v", h)
	}
}

func (t task) hookHTTP(ctx context.Context, c *corev1.Container, get *corev1.HTTPGetAction) error {
	host := get.Host
	if host == "" {
		if len(t.ips) == 0 {
			return fmt.Errorf("the pod has no address")
		}
		host = t.ips[0]
	}
	port, err := portOf(c, get.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	url := scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/" + strings.TrimPrefix(get.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make a request to %s: %w", url, err)
	}
	for _, h := range get.HTTPHeaders {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
		}
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := hookClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxHookBody)); err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return nil
}

// hookClient talks to pods: their certificates are their own affair.
var hookClient = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // hooks identify nobody, as in every kubelet
	DisableKeepAlives: true,
	Proxy:             nil,
}}

func portOf(c *corev1.Container, p intstr.IntOrString) (int, error) {
	if p.Type == intstr.Int {
		return p.IntValue(), nil
	}
	for _, named := range c.Ports {
		if named.Name == p.StrVal {
			return int(named.ContainerPort), nil
		}
	}
	n, err := strconv.Atoi(p.StrVal)
	if err != nil {
		return 0, fmt.Errorf("container %s has no port named %q", c.Name, p.StrVal)
	}
	return n, nil
}
