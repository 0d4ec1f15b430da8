package options

import (
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// validateAudit refuses what would record nothing, and finds out whether the
// policy can be read and the log be written.
func (o *Options) validateAudit() []error {
	a := *o.Audit
	records := a.LogOptions.Path != "" || a.WebhookOptions.ConfigFile != ""
	switch {
	case a.PolicyFile == "" && !records:
		return nil
	case a.PolicyFile == "":
		return []error{errors.New("nothing would be audited without a policy; name one with --audit-policy-file")}
	case !records:
		return []error{
			errors.New(
				"--audit-policy-file says what to audit, but not where to; add --audit-log-path or --audit-webhook-config-file",
			),
		}
	}
	if errs := a.Validate(); len(errs) > 0 {
		return errs
	}
	if _, err := policy.LoadPolicyFromFile(a.PolicyFile); err != nil {
		return []error{fmt.Errorf("--audit-policy-file: %w; mend the policy, or leave the flag out", err)}
	}
	if a.LogOptions.MaxSize == 0 {
		a.LogOptions.MaxSize = 1 // so that the trial leaves no file open
	}
	if err := a.ApplyTo(&genericapiserver.Config{}); err != nil {
		return []error{fmt.Errorf(
			"the audit log cannot be written: %w; give another --audit-log-path or --audit-webhook-config-file", err,
		)}
	}
	return nil
}
