package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// account is where a pod finds its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// api asks the API server as programs in a cluster do: at the address that the
// environment names, as the pod's service account, trusting the cluster's CA.
// {namespace} in the path stands for the pod's own.
func api(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: api PATH")
	}
	return askAPI(
		ctx, args[0], account, net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		out,
	)
}

func askAPI(ctx context.Context, path, account, address string, out io.Writer) error {
	files := map[string]string{"token": "", "ca.crt": "", "namespace": ""}
	for name := range files {
		content, err := os.ReadFile(filepath.Join(account, name))
		if err != nil {
			return err
		}
		files[name] = string(content)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(files["ca.crt"])) {
		return fmt.Errorf("%s holds no certificate", filepath.Join(account, "ca.crt"))
	}
	client := &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}},
	}
	url := "https://" + address + strings.ReplaceAll(path, "{namespace}", files["namespace"])
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+files["token"])
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<12))
		return fmt.Errorf("%s %s: %s: %s", request.Method, path, response.Status, strings.TrimSpace(string(body)))
	}
	_, err = io.Copy(out, response.Body)
	return err
}
