import { iptablesCompliance } from '../../compliance/iptables.ts';
import { FakeIptables } from '../../fakes/fake-iptables.ts';

iptablesCompliance('the fake', async () => new FakeIptables());
