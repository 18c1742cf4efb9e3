# .ci/run says what each target does, for this file and for the workflow alike.
.PHONY: check test race bench tidy

check test race bench:
	.ci/run $@

# -e, since not every proxy serves what the tests of a dependency need.
tidy:
	@for module in . tests examples/orm examples/metrics bench tools; do \
		echo "== $$module"; ( cd $$module && go mod tidy -e ) || exit 1; \
	done
