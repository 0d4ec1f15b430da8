package server_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv"
)

// run runs a command on the control plane's data and returns what it says, or its error.
func run(t *testing.T, env *testenv.Env, args ...string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Execute(t.Context(), append(args, "--data-dir", env.DataDir()), &out, &errOut); code != 0 {
		if strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%v: the error has several lines: %s", args, &errOut)
		}
		return "", fmt.Errorf("%s", strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

// administrator reaches the API with the kubeconfig as it is now.
func administrator(t *testing.T, env *testenv.Env) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(env.DataDir(), "kubeconfig"))
	must(t, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// accountToken is a token of the default account.
func accountToken(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	answer, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return answer.Status.Token
}

// accepts reports whether a running control plane takes a token.
func accepts(t *testing.T, env *testenv.Env, token string) bool {
	t.Helper()
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: env.Config.Host, BearerToken: token, TLSClientConfig: restclient.TLSClientConfig{Insecure: true}})
	must(t, err)
	_, err = client.Discovery().ServerVersion()
	if err == nil {
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	return err == nil
}

// publishedAuthorities waits until pods are told of so many.
func publishedAuthorities(t *testing.T, env *testenv.Env, client kubernetes.Interface, count int) {
	t.Helper()
	env.Eventually(fmt.Sprintf("pods are told of %d authorities", count), func(ctx context.Context) error {
		for _, ns := range []string{"default", "kube-system"} {
			cm, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := strings.Count(cm.Data["ca.crt"], "BEGIN"); got != count {
				return fmt.Errorf("%s has %d", ns, got)
			}
		}
		return nil
	})
}

// The authority of a running control plane is replaced: everybody is let in beside each other until the end, and then only who has followed.
func TestRotateOfARunningControlPlane(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	old, keys := env.Client, filepath.Join(env.DataDir(), "pki")
	oldToken, err := run(t, env, "token", "create")
	must(t, err)
	oldPod := accountToken(t, old)
	for _, which := range [][]string{{"rotate-ca"}, {"rotate-ca", "--nodes"}, {"rotate-service-account-key"}} {
		if _, err := run(t, env, append([]string{"certificates"}, append(which, "--finish")...)...); err == nil || !strings.Contains(err.Error(), "nothing to finish") {
			t.Errorf("%v before there is a new one: %v", which, err)
		}
		said, err := run(t, env, append([]string{"certificates"}, which...)...)
		must(t, err)
		if !strings.Contains(said, "everynode certificates "+strings.Join(which, " ")+" --finish") {
			t.Errorf("%v says %q", which, said)
		}
	}
	listed, err := run(t, env, "certificates", "list")
	must(t, err)
	for _, want := range []string{"ca-previous.crt", "trusted until --finish", "node-ca-previous.crt", "service-account-previous.pub", "apiserver.crt", "in use"} {
		if !strings.Contains(listed, want) {
			t.Errorf("the list does not show %q:\n%s", want, listed)
		}
	}
	publishedAuthorities(t, env, old, 2)
	now := administrator(t, env)
	if _, err := now.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the new kubeconfig: %v", err)
	}
	if !accepts(t, env, oldPod) {
		t.Error("a pod's token of before is refused")
	}
	newPod := accountToken(t, now)
	// Machines join with the token of before and with a new one.
	newToken, err := run(t, env, "token", "create")
	must(t, err)
	if oldToken[24:] == newToken[24:] {
		t.Error("the new token names the old authority")
	}
	for node, token := range map[string]string{"n-old": oldToken, "n-new": newToken} {
		_, err := join.Join(t.Context(), join.Config{Server: env.Config.Host, Token: strings.TrimSpace(token), NodeName: node, NodeIPs: func() []net.IP { return []net.IP{{10, 0, 0, 7}} }, DataDir: t.TempDir()})
		if err != nil {
			t.Errorf("%s joins: %v", node, err)
		}
	}

	for _, which := range [][]string{{"rotate-ca"}, {"rotate-ca", "--nodes"}, {"rotate-service-account-key"}} {
		finish := append([]string{"certificates"}, append(which, "--finish")...)
		if _, err := run(t, env, finish...); err == nil || !strings.Contains(err.Error(), "until everybody uses it") {
			t.Errorf("%v at once: %v", finish, err)
		}
		_, err := run(t, env, append(finish, "--force")...)
		must(t, err)
	}
	now = administrator(t, env)
	publishedAuthorities(t, env, now, 1)
	env.Eventually("who has not followed is out", func(ctx context.Context) error {
		if _, err := old.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
			return fmt.Errorf("the old administrator is let in")
		}
		if accepts(t, env, oldPod) {
			return fmt.Errorf("the old pod is let in")
		}
		return nil
	})
	if !accepts(t, env, newPod) {
		t.Error("a pod's token of the new key is refused")
	}
	_, err = join.Join(t.Context(), join.Config{Server: env.Config.Host, Token: strings.TrimSpace(oldToken), NodeName: "n-late", NodeIPs: func() []net.IP { return []net.IP{{10, 0, 0, 7}} }, DataDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "its CA is not the one that the join token names") {
		t.Errorf("a join with the old authority's token after the end: %v", err)
	}

	// On the data of a stopped server it works, too.
	env.Stop()
	hash, err := pki.ReadCAHash(keys)
	must(t, err)
	_, err = run(t, env, "certificates", "rotate-ca")
	must(t, err)
	_, err = run(t, env, "certificates", "renew")
	must(t, err)
	env.Restart()
	if again, err := pki.ReadCAHash(keys); err != nil || again == hash {
		t.Errorf("the authority is %s, %v after a rotation while the server was stopped", again, err)
	}
	if _, err := env.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
