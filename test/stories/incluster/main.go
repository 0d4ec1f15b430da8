// Command incluster is a program as many run in clusters, in an image of a story's
// own: client-go finds the API server and the pod's account by itself. Every second
// it lists the pods of its namespace and prints how many there are, as whom it
// asked, and by which of its account's tokens; or what it was told instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// tokenName is where the API server tells which token it was asked with.
	tokenName = "authentication.kubernetes.io/credential-id"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	fmt.Printf("asks %s\n", config.Host)
	for tick := time.Tick(time.Second); ; {
		fmt.Println(look(ctx, client, string(namespace)))
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

func look(ctx context.Context, client kubernetes.Interface, namespace string) string {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	me, errMe := client.AuthenticationV1().SelfSubjectReviews().Create(
		ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{},
	)
	if err := errors.Join(err, errMe); err != nil {
		return err.Error()
	}
	who := me.Status.UserInfo
	return fmt.Sprintf("%d pods, as %s, with %s", len(pods.Items), who.Username, strings.Join(who.Extra[tokenName], ","))
}
