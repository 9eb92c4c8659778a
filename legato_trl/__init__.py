"""TRL trains vision-language policies on desktops: GRPO whose reward is the verdict."""

from legato_trl.config import LegatoGRPOConfig
from legato_trl.trainer import LegatoGRPOTrainer

__all__ = ["LegatoGRPOConfig", "LegatoGRPOTrainer"]
