package beside

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/beside/certs"
)

// certificateEvery is the time between two looks at the certificate; firstEvery is until there is one.
const (
	certificateEvery = 30 * time.Second
	firstEvery       = time.Second
)

// keepCertificate serves with what the Secret holds, and renews that when it is due, until ctx ends.
func (g *Guest) keepCertificate(ctx context.Context) {
	for {
		pause := certificateEvery
		held, err := g.certificate(ctx)
		if err == nil {
			err = g.serveWith(held)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot keep the webhook's certificate, will try again")
		}
		if !g.webhook.Ready() {
			pause = firstEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (g *Guest) serveWith(held map[string][]byte) error {
	pair, err := certs.Serving(held)
	if err != nil {
		return err
	}
	ends, err := certs.Ends(held)
	if err != nil {
		return err
	}
	g.webhook.Use(pair, ends)
	return nil
}

// certificate returns what the Secret holds, renewed if that is due. Several replicas may find that at once: the first
// write counts, and the others read it.
func (g *Guest) certificate(ctx context.Context) (map[string][]byte, error) {
	names, err := g.names()
	if err != nil {
		return nil, err
	}
	secrets := g.client.CoreV1().Secrets(g.cfg.Namespace)
	have, err := secrets.Get(ctx, g.cfg.Secret, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, fmt.Errorf("read Secret %s/%s: %w", g.cfg.Namespace, g.cfg.Secret, err)
	}
	if missing {
		have = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: g.cfg.Namespace, Name: g.cfg.Secret}}
	}
	want, err := certs.Renew(have.Data, names, time.Now(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("renew what Secret %s/%s holds: %w", g.cfg.Namespace, g.cfg.Secret, err)
	}
	if maps.EqualFunc(have.Data, want, slices.Equal[[]byte]) {
		return want, nil
	}
	next := have.DeepCopy()
	next.Data = want
	if missing {
		next, err = secrets.Create(ctx, next, metav1.CreateOptions{})
	} else {
		next, err = secrets.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("write Secret %s/%s: %w", g.cfg.Namespace, g.cfg.Secret, err)
	}
	return next.Data, nil
}

// names are those by which the API server finds the webhook.
func (g *Guest) names() ([]string, error) {
	if g.cfg.URL == "" {
		return []string{g.cfg.Service + "." + g.cfg.Namespace + ".svc"}, nil
	}
	at, err := url.Parse(g.cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the webhook's URL: %w", err)
	}
	host := at.Hostname()
	if host == "" {
		return nil, fmt.Errorf("the webhook's URL %q names no host", g.cfg.URL)
	}
	if ip := net.ParseIP(host); ip != nil {
		return []string{ip.String()}, nil
	}
	return []string{host}, nil
}
