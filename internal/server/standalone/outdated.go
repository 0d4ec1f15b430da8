package standalone

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/definitions"
)

// reach returns an error where the API cannot be reached, or is not to be worked with.
func reach(ctx context.Context, o Options, client kubernetes.Interface) error {
	_, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the API at %s: %w", o.Config.Host, err)
	}
	err = outdated(ctx, client)
	switch {
	case err != nil && o.Beside != nil: // those that run already go on
		return err
	case err != nil: // somebody must make pods
		klog.FromContext(ctx).Error(err, "Parts of policies may not be followed")
	}
	return nil
}

// few names the first of fields that are lacking, and says how many more there are.
func few(lacking []string) string {
	const named = 5
	if more := len(lacking) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(lacking[:named], ", "), more)
	}
	return strings.Join(lacking, ", ")
}

// outdated returns an error where the API's definitions of Everynode's own kinds lack fields that this program knows:
// the API drops what people write there, and what the program itself has to remember. That kinds are missing is said by
// who reads them.
func outdated(ctx context.Context, client kubernetes.Interface) error {
	lacking, err := definitions.LackingOf(ctx, client.Discovery().RESTClient())
	if err != nil || len(lacking) == 0 {
		return err
	}
	return fmt.Errorf("the API's definitions of Everynode's kinds are older than this program, and lack %s: what is "+
		"written there is dropped; bring them up to date with: everynode controller --print-crds | kubectl apply -f -",
		few(lacking))
}
